/* What every operator header includes. */
#ifndef ANYCANN_ACLNN_ACLNN_BASE_H
#define ANYCANN_ACLNN_ACLNN_BASE_H

#include "acl_meta.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Begin and end of the operators, beside those of the runtime; calling both is fine. */
ANYCANN_API aclnnStatus aclnnInit(const char *configPath);
ANYCANN_API aclnnStatus aclnnFinalize(void);

#ifdef __cplusplus
}
#endif

#endif
