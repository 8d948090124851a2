// How kernels are started: from Python through a table of entries, from C++ by <<<>>> (rewritten before compiling), ACLRT_LAUNCH_KERNEL
// and ICPU_RUN_KF.
#ifndef ANYCANN_EMU_LAUNCH_H
#define ANYCANN_EMU_LAUNCH_H

#include <memory>
#include <tuple>
#include <utility>

#include "emu/names.h"

// The product that the file is compiled for; the build passes other values.
#ifndef ANYCANN_UB_BYTES
#define ANYCANN_UB_BYTES 196608
#define ANYCANN_UB_RESERVED 8448
#define ANYCANN_EVENT_IDS 8
#define ANYCANN_CORES 48
#endif

extern "C" {

struct AnycannRegion {  // global memory that a launch may touch
    const void* address;
    std::int64_t bytes;
    const char* name;
    std::int32_t writable;
};

struct AnycannLaunch {
    const char* kernel;
    void (*call)(void* context);
    void* context;
    std::int64_t blocks, cores;
    std::int64_t ubBytes, ubReserved, eventIds;
    std::uint64_t tilingKey;
    std::int32_t check, trace;
    double timeoutSeconds;
    const AnycannRegion* regions;
    std::int64_t regionCount;  // -1: unknown, global memory is not bounded
};

// Runs every block; returns a handle to the findings. The strings live as long as the handle.
void* anycann_ascendc_run(const AnycannLaunch* launch);
const char* anycann_ascendc_findings(void* handle);  // JSON
const char* anycann_ascendc_text(void* handle);      // the same for a reader, empty when there is nothing to report
const char* anycann_ascendc_trace(void* handle);     // Chrome trace JSON, empty unless asked for
void anycann_ascendc_free(void* handle);

// For launches from C++: prints mistakes to stderr, makes the process exit with status 1, returns the number of mistakes.
// With a stream, and where the runtime library offers anycann_stream_enqueue, the run happens in stream order, and 0 means that it was queued.
// A launch that is refused, for its number of blocks or its stream, computes nothing and returns an error code.
int anycann_ascendc_start(const AnycannLaunch* launch, void* stream, void (*release)(void* context));
void anycann_ascendc_set_tiling_key(std::uint64_t key);
void* anycann_ascendc_gm_alloc(std::size_t bytes);
void anycann_ascendc_gm_free(void* address);
}

namespace anycann {
namespace emu {

// A parameter as Python sees it: "*half" a pointer to half, "=float" a value; `size` is that of the value.
struct Parameter {
    const char* type;
    std::int64_t size;
};

struct KernelEntry {
    const char* name;
    void (*call)(void* slots);  // slots[i] points to argument i
    const Parameter* parameters;
    std::int64_t count;
};

template <typename T>
constexpr const char* TypeName()
{
    using V = std::remove_cv_t<T>;
    if (std::is_same<V, half*>::value) return "*half";
    if (std::is_same<V, bfloat16_t*>::value) return "*bfloat16_t";
    if (std::is_same<V, float*>::value) return "*float";
    if (std::is_same<V, double*>::value) return "*double";
    if (std::is_same<V, int8_t*>::value) return "*int8_t";
    if (std::is_same<V, int16_t*>::value) return "*int16_t";
    if (std::is_same<V, int32_t*>::value) return "*int32_t";
    if (std::is_same<V, int64_t*>::value) return "*int64_t";
    if (std::is_same<V, uint16_t*>::value) return "*uint16_t";
    if (std::is_same<V, uint32_t*>::value) return "*uint32_t";
    if (std::is_same<V, uint64_t*>::value) return "*uint64_t";
    if (std::is_pointer<V>::value) return "*";
    if (std::is_same<V, bool>::value) return "=bool";
    if (std::is_same<V, half>::value) return "=half";
    if (std::is_same<V, bfloat16_t>::value) return "=bfloat16_t";
    if (std::is_floating_point<V>::value) return sizeof(V) == 4 ? "=float" : "=double";
    if (std::is_integral<V>::value) return std::is_signed<V>::value ? "=int" : "=uint";
    return "=struct";
}

template <auto kernel>
struct Entry;
template <typename... P, void (*kernel)(P...)>
struct Entry<kernel> {
    static_assert((std::is_trivially_copyable<P>::value && ...), "a kernel's parameters are pointers, numbers or plain structs");
    template <std::size_t... i>
    static void Apply([[maybe_unused]] void* const* slots, std::index_sequence<i...>) { kernel(*static_cast<std::remove_cv_t<P>*>(slots[i])...); }
    static void Call(void* slots) { Apply(static_cast<void* const*>(slots), std::index_sequence_for<P...>{}); }
    static constexpr Parameter parameters[sizeof...(P) + 1] = {{TypeName<P>(), static_cast<std::int64_t>(sizeof(P))}..., {nullptr, 0}};
    static constexpr KernelEntry Make(const char* name) { return {name, &Call, parameters, static_cast<std::int64_t>(sizeof...(P))}; }
};

// A launch from C++: keeps the arguments until the run is over.
template <typename... P>
class Bound {
public:
    Bound(const char* name, std::int64_t blocks, void* stream, void (*kernel)(P...)) : name_(name), blocks_(blocks), stream_(stream), kernel_(kernel) {}
    std::uint32_t operator()(P... arguments) const
    {
        struct Job {
            void (*kernel)(P...);
            std::tuple<P...> arguments;
            static void Run(void* job) { std::apply(static_cast<Job*>(job)->kernel, static_cast<Job*>(job)->arguments); }
            static void Release(void* job) { delete static_cast<Job*>(job); }
        };
        AnycannLaunch launch{};
        launch.kernel = name_;
        launch.call = &Job::Run;
        launch.context = new Job{kernel_, std::tuple<P...>(arguments...)};
        launch.blocks = blocks_;
        launch.cores = ANYCANN_CORES;
        launch.ubBytes = ANYCANN_UB_BYTES;
        launch.ubReserved = ANYCANN_UB_RESERVED;
        launch.eventIds = ANYCANN_EVENT_IDS;
#ifndef ANYCANN_FAST
        launch.check = 1;
#endif
        launch.timeoutSeconds = 60.0;
        launch.regionCount = -1;
        return static_cast<std::uint32_t>(anycann_ascendc_start(&launch, stream_, &Job::Release));
    }

private:
    const char* name_;
    std::int64_t blocks_;
    void* stream_;
    void (*kernel_)(P...);
};

class Launcher {
public:
    Launcher(const char* name, std::int64_t blocks, const void* = nullptr, void* stream = nullptr) : name_(name), blocks_(blocks), stream_(stream) {}
    template <typename... P>
    Bound<P...> Bind(void (*kernel)(P...)) const { return Bound<P...>(name_, blocks_, stream_, kernel); }

private:
    const char* name_;
    std::int64_t blocks_;
    void* stream_;
};

}  // namespace emu
}  // namespace anycann

#define ICPU_RUN_KF(kernel, blocks, ...) ::anycann::emu::Launcher(#kernel, static_cast<std::int64_t>(blocks)).Bind(kernel)(__VA_ARGS__)
#define ICPU_SET_TILING_KEY(key) anycann_ascendc_set_tiling_key(static_cast<std::uint64_t>(key))
#ifndef ACLRT_LAUNCH_KERNEL
#define ACLRT_LAUNCH_KERNEL(kernel) aclrtlaunch_##kernel
#endif

#endif
