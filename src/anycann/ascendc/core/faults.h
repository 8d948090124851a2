// What the processor cannot do for a kernel becomes words.
#ifndef ANYCANN_CORE_FAULTS_H
#define ANYCANN_CORE_FAULTS_H

#include "state.h"

namespace anycann {
namespace emu {

// Before a launch: others may have taken the signals since the last one, Python's faulthandler for one.
void TakeSignals();
void SignalsLock();
void SignalsUnlock();

// How a kernel ended: by itself, or stopped; for a fault of the processor, in words, else for what its reports say.
struct Ending {
    bool stopped;
    std::string fault;
    std::uintptr_t counter;  // of the instruction
};

// Calls a kernel. Where it is stopped, its objects are not destroyed.
Ending CallKernel(void (*call)(void*), void* context);

// The line of a source that has the instruction; line 0 if nobody knows.
Loc PlaceOf(std::uintptr_t counter);

// Lets go of the lock of atomic additions where this thread was stopped while it held it.
void AtomicRelease();

}  // namespace emu
}  // namespace anycann

#endif
