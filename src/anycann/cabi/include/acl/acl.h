/* Everything of the runtime interface. */
#ifndef ANYCANN_ACL_ACL_H
#define ANYCANN_ACL_ACL_H

#include "acl_base.h"
#include "acl_rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Begin and end. The path of a configuration file may be null. */
ANYCANN_API aclError aclInit(const char *configPath);
ANYCANN_API aclError aclFinalize(void);
ANYCANN_API aclError aclFinalizeReference(uint64_t *refCount);

/* What the latest refused call of this thread said, or null; reading clears it. Valid until this thread reads again. */
ANYCANN_API const char *aclGetRecentErrMsg(void);

#ifdef __cplusplus
}
#endif

#endif
