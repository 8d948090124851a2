// What other libraries of anycann call in this one, where it is loaded: not part of what users include.
#ifndef ANYCANN_CABI_HOOKS_H
#define ANYCANN_CABI_HOOKS_H

#include "acl/acl_base.h"

extern "C" {

typedef int (*anycannJob)(void *);

// Queue job(context) on a stream; 0 when it was taken.
ANYCANN_API aclError anycann_stream_enqueue(void *stream, anycannJob job, void *context);
// 0 where simulated cores can read and write device memory: not where it is a GPU's.
ANYCANN_API aclError anycann_need_cores(void);
// The live device memory that an address lies in; 0 when there is one.
ANYCANN_API aclError anycann_device_block(const void *address, void **base, size_t *bytes);

}  // extern "C"

#endif
