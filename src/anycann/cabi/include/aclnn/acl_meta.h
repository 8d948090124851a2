/* What operators take: tensors, scalars, arrays, lists, and the executors between their two phases. */
#ifndef ANYCANN_ACLNN_ACL_META_H
#define ANYCANN_ACLNN_ACL_META_H

#include "../acl/acl_base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t aclnnStatus;
typedef struct aclOpExecutor aclOpExecutor;
typedef struct aclTensor aclTensor;
typedef struct aclScalar aclScalar;
typedef struct aclIntArray aclIntArray;
typedef struct aclFloatArray aclFloatArray;
typedef struct aclBoolArray aclBoolArray;
typedef struct aclTensorList aclTensorList;
typedef struct aclScalarList aclScalarList;

static const aclnnStatus ACLNN_SUCCESS = 0;
static const aclnnStatus ACLNN_ERR_PARAM_NULLPTR = 161001;
static const aclnnStatus ACLNN_ERR_PARAM_INVALID = 161002;
static const aclnnStatus ACLNN_ERR_RUNTIME_ERROR = 361001;
static const aclnnStatus ACLNN_ERR_INNER = 561000;
static const aclnnStatus ACLNN_ERR_INNER_INFERSHAPE_ERROR = 561001;
static const aclnnStatus ACLNN_ERR_INNER_TILING_ERROR = 561002;
static const aclnnStatus ACLNN_ERR_INNER_FIND_KERNEL_ERROR = 561003;
static const aclnnStatus ACLNN_ERR_INNER_CREATE_EXECUTOR = 561101;
static const aclnnStatus ACLNN_ERR_INNER_NOT_TRANS_EXECUTOR = 561102;
static const aclnnStatus ACLNN_ERR_INNER_NULLPTR = 561103;
static const aclnnStatus ACLNN_ERR_INNER_WRONG_ATTR_INFO_SIZE = 561104;
static const aclnnStatus ACLNN_ERR_INNER_KEY_CONFILICT = 561105;
static const aclnnStatus ACLNN_ERR_INNER_INVALID_IMPL_MODE = 561106;
static const aclnnStatus ACLNN_ERR_INNER_OPP_PATH_NOT_FOUND = 561107;
static const aclnnStatus ACLNN_ERR_INNER_LOAD_JSON_FAILED = 561108;
static const aclnnStatus ACLNN_ERR_INNER_JSON_VALUE_NOT_FOUND = 561109;
static const aclnnStatus ACLNN_ERR_INNER_JSON_FORMAT_INVALID = 561110;
static const aclnnStatus ACLNN_ERR_INNER_JSON_DTYPE_INVALID = 561111;
static const aclnnStatus ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND = 561112;
static const aclnnStatus ACLNN_ERR_INNER_OP_FILE_INVALID = 561113;
static const aclnnStatus ACLNN_ERR_INNER_ATTR_NUM_OUT_OF_BOUND = 561114;
static const aclnnStatus ACLNN_ERR_INNER_ATTR_LEN_NOT_ENOUGH = 561115;
static const aclnnStatus ACLNN_ERR_INNER_INPUT_NUM_IN_JSON_TOO_LARGE = 561116;
static const aclnnStatus ACLNN_ERR_INNER_JSON_VALUE_IS_NULL = 561117;
static const aclnnStatus ACLNN_ERR_INNER_STATIC_WORKSPACE_INVALID = 561118;
static const aclnnStatus ACLNN_ERR_INNER_STATIC_BLOCK_DIM_INVALID = 561119;

/* Describe a view of memory. Counts and strides are elements; null strides are those of a contiguous view. Null if refused. */
ANYCANN_API aclTensor *aclCreateTensor(const int64_t *viewDims, uint64_t viewDimsNum, aclDataType dataType, const int64_t *strides,
                                       int64_t offset, aclFormat format, const int64_t *storageDims, uint64_t storageDimsNum,
                                       void *tensorData);
/* Describe another view in a tensor that exists. */
ANYCANN_API aclnnStatus aclInitTensor(aclTensor *tensor, const int64_t *viewDims, uint64_t viewDimsNum, aclDataType dataType,
                                      const int64_t *strides, int64_t offset, aclFormat format, const int64_t *storageDims,
                                      uint64_t storageDimsNum, void *tensorData);
ANYCANN_API aclScalar *aclCreateScalar(void *value, aclDataType dataType);
ANYCANN_API aclIntArray *aclCreateIntArray(const int64_t *value, uint64_t size);
ANYCANN_API aclFloatArray *aclCreateFloatArray(const float *value, uint64_t size);
ANYCANN_API aclBoolArray *aclCreateBoolArray(const bool *value, uint64_t size);
/* A list owns its members from here on: destroying it destroys them. */
ANYCANN_API aclTensorList *aclCreateTensorList(const aclTensor *const *value, uint64_t size);
ANYCANN_API aclScalarList *aclCreateScalarList(const aclScalar *const *value, uint64_t size);

/* Destroying null is no mistake. */
ANYCANN_API aclnnStatus aclDestroyTensor(const aclTensor *tensor);
ANYCANN_API aclnnStatus aclDestroyScalar(const aclScalar *scalar);
ANYCANN_API aclnnStatus aclDestroyIntArray(const aclIntArray *array);
ANYCANN_API aclnnStatus aclDestroyFloatArray(const aclFloatArray *array);
ANYCANN_API aclnnStatus aclDestroyBoolArray(const aclBoolArray *array);
ANYCANN_API aclnnStatus aclDestroyTensorList(const aclTensorList *array);
ANYCANN_API aclnnStatus aclDestroyScalarList(const aclScalarList *array);

/* Dimensions and strides come in memory of their own: release it with delete[]. */
ANYCANN_API aclnnStatus aclGetViewShape(const aclTensor *tensor, int64_t **viewDims, uint64_t *viewDimsNum);
ANYCANN_API aclnnStatus aclGetStorageShape(const aclTensor *tensor, int64_t **storageDims, uint64_t *storageDimsNum);
ANYCANN_API aclnnStatus aclGetViewStrides(const aclTensor *tensor, int64_t **stridesValue, uint64_t *stridesNum);
ANYCANN_API aclnnStatus aclGetViewOffset(const aclTensor *tensor, int64_t *offset);
ANYCANN_API aclnnStatus aclGetFormat(const aclTensor *tensor, aclFormat *format);
ANYCANN_API aclnnStatus aclGetDataType(const aclTensor *tensor, aclDataType *dataType);
ANYCANN_API aclnnStatus aclGetIntArraySize(const aclIntArray *array, uint64_t *size);
ANYCANN_API aclnnStatus aclGetFloatArraySize(const aclFloatArray *array, uint64_t *size);
ANYCANN_API aclnnStatus aclGetBoolArraySize(const aclBoolArray *array, uint64_t *size);
ANYCANN_API aclnnStatus aclGetTensorListSize(const aclTensorList *list, uint64_t *size);
ANYCANN_API aclnnStatus aclGetScalarListSize(const aclScalarList *list, uint64_t *size);
ANYCANN_API aclnnStatus aclSetRawTensorAddr(aclTensor *tensor, void *addr);
ANYCANN_API aclnnStatus aclGetRawTensorAddr(const aclTensor *tensor, void **addr);

/* An executor that was made repeatable, right after phase 1, runs until it is destroyed; its tensors may move between runs. */
ANYCANN_API aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor *executor);
ANYCANN_API aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor *executor);
ANYCANN_API aclnnStatus aclSetInputTensorAddr(aclOpExecutor *executor, const size_t index, aclTensor *tensor, void *addr);
ANYCANN_API aclnnStatus aclSetOutputTensorAddr(aclOpExecutor *executor, const size_t index, aclTensor *tensor, void *addr);
ANYCANN_API aclnnStatus aclSetTensorAddr(aclOpExecutor *executor, const size_t index, aclTensor *tensor, void *addr);

/* Older spellings. */
ANYCANN_API aclnnStatus AclSetInputTensorAddr(aclOpExecutor *executor, const size_t index, aclTensor *tensor, void *addr);
ANYCANN_API aclnnStatus AclSetOutputTensorAddr(aclOpExecutor *executor, const size_t index, aclTensor *tensor, void *addr);
ANYCANN_API aclnnStatus AclSetTensorAddr(aclOpExecutor *executor, const size_t index, aclTensor *tensor, void *addr);

#ifdef __cplusplus
}
#endif

#endif
