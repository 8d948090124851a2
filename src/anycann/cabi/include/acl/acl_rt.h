/* The runtime: devices, contexts, streams, events and memory. */
#ifndef ANYCANN_ACL_ACL_RT_H
#define ANYCANN_ACL_ACL_RT_H

#include "acl_base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { ACL_DEVICE = 0, ACL_HOST = 1 } aclrtRunMode;

typedef enum {
    ACL_MEMCPY_HOST_TO_HOST = 0,
    ACL_MEMCPY_HOST_TO_DEVICE = 1,
    ACL_MEMCPY_DEVICE_TO_HOST = 2,
    ACL_MEMCPY_DEVICE_TO_DEVICE = 3,
    ACL_MEMCPY_DEFAULT = 4,
    ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE = 5
} aclrtMemcpyKind;

typedef enum {
    ACL_MEM_MALLOC_HUGE_FIRST = 0,
    ACL_MEM_MALLOC_HUGE_ONLY = 1,
    ACL_MEM_MALLOC_NORMAL_ONLY = 2,
    ACL_MEM_MALLOC_HUGE_FIRST_P2P = 3,
    ACL_MEM_MALLOC_HUGE_ONLY_P2P = 4,
    ACL_MEM_MALLOC_NORMAL_ONLY_P2P = 5
} aclrtMemMallocPolicy;

typedef enum { ACL_DDR_MEM = 0, ACL_HBM_MEM = 1 } aclrtMemAttr;

typedef enum { ACL_STREAM_STATUS_COMPLETE = 0, ACL_STREAM_STATUS_NOT_READY = 1 } aclrtStreamStatus;

typedef enum { ACL_EVENT_STATUS_COMPLETE = 0, ACL_EVENT_STATUS_NOT_READY = 1 } aclrtEventStatus;

typedef enum { ACL_EVENT_RECORDED_STATUS_NOT_READY = 0, ACL_EVENT_RECORDED_STATUS_COMPLETE = 1 } aclrtEventRecordedStatus;

/* Flags of streams and events. They change nothing here: every stream is fast, every event has a time. */
#define ACL_STREAM_FAST_LAUNCH 0x00000001U
#define ACL_STREAM_FAST_SYNC 0x00000002U
#define ACL_EVENT_SYNC 0x00000001U
#define ACL_EVENT_CAPTURE_STREAM_PROGRESS 0x00000002U
#define ACL_EVENT_TIME_LINE 0x00000008U

/* Devices. Each thread has its own device in use. */
ANYCANN_API aclError aclrtSetDevice(int32_t deviceId);
ANYCANN_API aclError aclrtResetDevice(int32_t deviceId);
ANYCANN_API aclError aclrtResetDeviceForce(int32_t deviceId);
ANYCANN_API aclError aclrtGetDevice(int32_t *deviceId);
ANYCANN_API aclError aclrtGetDeviceCount(uint32_t *count);
ANYCANN_API aclError aclrtGetRunMode(aclrtRunMode *runMode);
ANYCANN_API aclError aclrtSynchronizeDevice(void);
ANYCANN_API const char *aclrtGetSocName(void);
ANYCANN_API aclError aclrtGetVersion(int32_t *majorVersion, int32_t *minorVersion, int32_t *patchVersion);

/* Contexts. */
ANYCANN_API aclError aclrtCreateContext(aclrtContext *context, int32_t deviceId);
ANYCANN_API aclError aclrtDestroyContext(aclrtContext context);
ANYCANN_API aclError aclrtSetCurrentContext(aclrtContext context);
ANYCANN_API aclError aclrtGetCurrentContext(aclrtContext *context);

/* Streams: work in the order in which it was queued. A null stream is the default stream of the context. */
ANYCANN_API aclError aclrtCreateStream(aclrtStream *stream);
ANYCANN_API aclError aclrtCreateStreamWithConfig(aclrtStream *stream, uint32_t priority, uint32_t flag);
ANYCANN_API aclError aclrtDestroyStream(aclrtStream stream);
ANYCANN_API aclError aclrtDestroyStreamForce(aclrtStream stream);
ANYCANN_API aclError aclrtSynchronizeStream(aclrtStream stream);
ANYCANN_API aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout); /* milliseconds; -1 is no limit */
ANYCANN_API aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus *status);
ANYCANN_API aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event);

/* Events: marks between the work of streams. */
ANYCANN_API aclError aclrtCreateEvent(aclrtEvent *event);
ANYCANN_API aclError aclrtCreateEventWithFlag(aclrtEvent *event, uint32_t flag);
ANYCANN_API aclError aclrtDestroyEvent(aclrtEvent event);
ANYCANN_API aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream);
ANYCANN_API aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream);
ANYCANN_API aclError aclrtSynchronizeEvent(aclrtEvent event);
ANYCANN_API aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus *status);
ANYCANN_API aclError aclrtEventElapsedTime(float *milliseconds, aclrtEvent startEvent, aclrtEvent endEvent);

/* Memory: of the device, and of the host for fast copies. */
ANYCANN_API aclError aclrtMalloc(void **devPtr, size_t size, aclrtMemMallocPolicy policy);
ANYCANN_API aclError aclrtMallocAlign32(void **devPtr, size_t size, aclrtMemMallocPolicy policy);
ANYCANN_API aclError aclrtFree(void *devPtr);
ANYCANN_API aclError aclrtMallocHost(void **hostPtr, size_t size);
ANYCANN_API aclError aclrtFreeHost(void *hostPtr);
ANYCANN_API aclError aclrtMemcpy(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind);
ANYCANN_API aclError aclrtMemcpyAsync(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind, aclrtStream stream);
ANYCANN_API aclError aclrtMemset(void *devPtr, size_t maxCount, int32_t value, size_t count);
ANYCANN_API aclError aclrtMemsetAsync(void *devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream);
ANYCANN_API aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t *free, size_t *total);

#ifdef __cplusplus
}
#endif

#endif
