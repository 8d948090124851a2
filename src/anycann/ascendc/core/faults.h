// What the processor cannot do for a kernel becomes words.
#ifndef ANYCANN_CORE_FAULTS_H
#define ANYCANN_CORE_FAULTS_H

#include "state.h"

namespace anycann {
namespace emu {

// Calls a kernel: what the processor stopped it for, or nothing. Objects of the kernel are not destroyed then.
std::string FaultOf(void (*call)(void*), void* context);

// Lets go of the lock of atomic additions where this thread was stopped while it held it.
void AtomicRelease();

}  // namespace emu
}  // namespace anycann

#endif
