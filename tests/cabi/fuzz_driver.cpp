// Plays random sequences of calls: valid, destroyed, foreign and random handles, addresses of every kind, absurd sizes.
// fuzz_driver FIRST COUNT CODE...: sequences FIRST to FIRST + COUNT; every status must be one of the codes. Prints what is left at the end.
#include <acl/acl.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "aclnnop/aclnn_gelu_backward_v2.h"
#include "aclnnop/aclnn_gelu_v2.h"
#include "aclnnop/aclnn_moe_token_permute_grad.h"
#include "aclnnop/aclnn_nsa_compress_grad.h"
#include "aclnnop/aclnn_smooth_l1_loss.h"
#include "aclnnop/aclnn_smooth_l1_loss_backward.h"

namespace {

constexpr std::size_t kArena = 512;
constexpr std::uint64_t kUntouched = 0x5EED5EED5EED5EEDull;
const std::vector<std::uint64_t> kAbsurd = {1ull << 31, 1ull << 45, 1ull << 62, ~0ull >> 1, 1ull << 63, ~0ull - 31, ~0ull};
const std::vector<std::uint64_t> kJunk = {1, 7, 8, 4095, 0x00AC000000000008, 0x00AC000000000010, 1ull << 47, 1ull << 63, ~0ull - 4095, ~0ull};

enum Kind { kStream, kEvent, kContext, kTensor, kScalar, kInts, kFloats, kBools, kTensors, kScalars, kBuffer, kExecutor, kDevice, kHost, kKinds };

std::set<int> documented;
std::map<int, long> statuses;
long calls = 0;
unsigned sequence = 0;
alignas(64) unsigned char arena[kArena];  // the host memory that copies may read and write

[[noreturn]] void Fail(const char *what, long value)
{
    std::printf("sequence %u: %s (%ld)\n", sequence, what, value);
    std::fflush(stdout);
    std::abort();
}

void *Pointer(std::uint64_t value) { return reinterpret_cast<void *>(value); }

template <class T> T *As(std::uint64_t value) { return static_cast<T *>(Pointer(value)); }

template <class T> std::uint64_t Number(T *pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

// A status: documented, and with a text if it is a refusal.
int Said(int status)
{
    ++calls;
    ++statuses[status];
    if (documented.count(status) == 0 || status == ACLNN_ERR_INNER) {
        Fail("an undocumented status", status);
    }
    if (status != 0 && aclGetRecentErrMsg() == nullptr) {
        Fail("a refusal without a text", status);
    }
    return status;
}

class Player {
public:
    explicit Player(unsigned seed) : random_(seed) {}

    void Play()
    {
        const int steps = 3 + Below(12);
        for (int i = 0; i < steps; ++i) {
            Step();
        }
        CleanUp();
    }

private:
    std::mt19937 random_;
    std::array<std::vector<std::uint64_t>, kKinds> living_, dead_;

    int Below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }
    bool Maybe(int one_in) { return Below(one_in) == 0; }
    std::uint64_t One(const std::vector<std::uint64_t> &from) { return from[random_() % from.size()]; }
    std::uint64_t Size() { return Maybe(5) ? One(kAbsurd) : static_cast<std::uint64_t>(Below(80)); }

    // A handle where one of a kind is asked for: mostly a living one, else anything.
    std::uint64_t Handle(Kind kind)
    {
        const int what = Below(12);
        if (what < 8 && !living_[kind].empty()) {
            return One(living_[kind]);
        }
        if (what < 10 && !dead_[kind].empty()) {
            return One(dead_[kind]);
        }
        const Kind other = static_cast<Kind>(Below(kKinds));
        if (what == 10 && !living_[other].empty()) {
            return One(living_[other]);
        }
        return what == 11 ? 0 : One(kJunk);
    }

    std::uint64_t Keep(Kind kind, std::uint64_t handle)
    {
        if (handle != 0) {
            living_[kind].push_back(handle);
        } else if (aclGetRecentErrMsg() == nullptr) {
            Fail("no object and no text", kind);
        }
        return handle;
    }

    // A new object by out-parameter, which a refusal leaves alone.
    template <class Call> void Make(Kind kind, Call call)
    {
        void *made = Pointer(kUntouched);
        if (Said(call(&made)) == 0) {
            Keep(kind, Number(made));
        } else if (Number(made) != kUntouched) {
            Fail("a refused call wrote its output", kind);
        }
    }

    template <class Call> void End(Kind kind, Call call)
    {
        const std::uint64_t handle = Handle(kind);
        if (Said(call(handle)) == 0 && handle != 0) {
            Gone(kind, handle);
        }
    }

    void Gone(Kind kind, std::uint64_t handle)
    {
        const auto found = std::find(living_[kind].begin(), living_[kind].end(), handle);
        if (found == living_[kind].end()) {
            Fail("something was destroyed that does not live", kind);
        }
        living_[kind].erase(found);
        dead_[kind].push_back(handle);
    }

    std::uint64_t HostAddress() { return Maybe(6) ? One(kJunk) : Number(arena) + static_cast<unsigned>(Below(static_cast<int>(kArena))); }
    std::uint64_t DeviceAddress() { return Handle(kDevice) + (Maybe(4) ? static_cast<unsigned>(Below(70)) : 0); }

    // Device memory, living or freed, where the host's is asked for. Freed host memory may be anybody's by now, and is left alone.
    std::uint64_t Misplaced()
    {
        const std::vector<std::uint64_t> &from = Maybe(2) ? living_[kDevice] : dead_[kDevice];
        return from.empty() ? HostAddress() : One(from) + static_cast<unsigned>(Below(70));
    }

    void Copy(bool queued)
    {
        const aclrtMemcpyKind kind = static_cast<aclrtMemcpyKind>(Maybe(12) ? 6 + Below(9) : Below(6));
        const bool to_device = kind == 1 || kind == 3 || kind == 5, from_device = kind == 2 || kind == 3;
        const std::uint64_t to = to_device ? DeviceAddress() : Maybe(8) ? Misplaced() : HostAddress();
        const std::uint64_t from = from_device ? DeviceAddress() : Maybe(8) ? Misplaced() : HostAddress();
        std::uint64_t count = Size();
        for (const std::uint64_t place : {to_device ? 0 : to, from_device ? 0 : from}) {
            if (place >= Number(arena) && place < Number(arena) + kArena) {
                count = std::min(count, Number(arena) + kArena - place);
            }
        }
        const std::uint64_t room = Maybe(4) ? Size() : count;
        Said(queued ? aclrtMemcpyAsync(Pointer(to), room, Pointer(from), count, kind, Pointer(Handle(kStream)))
                    : aclrtMemcpy(Pointer(to), room, Pointer(from), count, kind));
    }

    void Set(bool queued)
    {
        const std::uint64_t place = Maybe(6) ? Handle(kHost) : DeviceAddress(), room = Size(), count = Maybe(2) ? room : Size();
        Said(queued ? aclrtMemsetAsync(Pointer(place), room, Below(300), count, Pointer(Handle(kStream)))
                    : aclrtMemset(Pointer(place), room, Below(300), count));
    }

    std::vector<std::int64_t> Dims()
    {
        std::vector<std::int64_t> dims(static_cast<std::size_t>(Maybe(8) ? Below(12) : 1 + Below(2)));
        for (std::int64_t &dim : dims) {
            dim = Maybe(25) ? static_cast<std::int64_t>(One(kAbsurd)) : Below(6);
        }
        return dims;
    }

    template <class Call> auto Described(Call call)
    {
        const std::vector<std::int64_t> view = Dims(), storage = Maybe(3) ? Dims() : view;
        std::vector<std::int64_t> strides = view;
        for (std::int64_t &stride : strides) {
            stride = Maybe(25) ? static_cast<std::int64_t>(One(kAbsurd)) : Below(7) - 2;
        }
        const std::uint64_t count = Maybe(40) ? One(kAbsurd) : view.size();
        const int type = Maybe(2) ? 0 : Below(40) - 2;
        return call(Maybe(30) || count > 64 ? nullptr : view.data(), count, static_cast<aclDataType>(type),
                    Maybe(3) || count > 64 ? strides.data() : nullptr, static_cast<std::int64_t>(Maybe(4) ? Below(9) - 3 : 0),
                    static_cast<aclFormat>(Maybe(10) ? Below(50) - 2 : 2), Maybe(30) ? nullptr : storage.data(), storage.size(),
                    Pointer(Maybe(5) ? 0 : DeviceAddress()));
    }

    void MakeTensor()
    {
        Keep(kTensor, Number(Described([](auto... args) { return aclCreateTensor(args...); })));
    }

    void Getters()
    {
        const aclTensor *tensor = As<aclTensor>(Handle(kTensor));
        std::int64_t *numbers = nullptr, offset = 0;
        std::uint64_t count = 0;
        aclFormat format;
        aclDataType type;
        void *place = nullptr;
        for (auto get : {aclGetViewShape, aclGetStorageShape, aclGetViewStrides}) {
            if (Said(get(tensor, &numbers, &count)) == 0) {
                for (std::uint64_t i = 0; i < count; ++i) {
                    offset += numbers[i] & 1;
                }
                delete[] numbers;
            }
        }
        Said(aclGetViewOffset(tensor, &offset));
        Said(aclGetFormat(tensor, &format));
        Said(aclGetDataType(tensor, &type));
        Said(aclGetRawTensorAddr(tensor, &place));
        Said(aclGetViewOffset(tensor, nullptr));
    }

    // Arrays, scalars and lists: made, asked, destroyed.
    void Things()
    {
        const std::int64_t ints[] = {1, -1, ~0ll};
        const float floats[] = {1, 2};
        const bool bools[] = {true, false};
        double number[] = {1.5, 0};  // as long as the longest type
        std::uint64_t size = 0;
        const aclTensor *tensors[] = {As<aclTensor>(Handle(kTensor)), As<aclTensor>(Handle(kTensor))};
        const aclScalar *scalars[] = {As<aclScalar>(Handle(kScalar))};
        switch (Below(15)) {
            case 0: Keep(kInts, Number(aclCreateIntArray(Maybe(9) ? nullptr : ints, Maybe(9) ? 0 : 1 + random_() % 3))); break;
            case 1: Keep(kFloats, Number(aclCreateFloatArray(floats, 2))); break;
            case 2: Keep(kBools, Number(aclCreateBoolArray(bools, 2))); break;
            case 3: Keep(kScalar, Number(aclCreateScalar(Maybe(9) ? nullptr : number, static_cast<aclDataType>(Below(40) - 2)))); break;
            case 4: Keep(kTensors, Number(aclCreateTensorList(tensors, 1 + random_() % 2))); break;
            case 5: Keep(kScalars, Number(aclCreateScalarList(scalars, 1))); break;
            case 6: End(kInts, [](std::uint64_t it) { return aclDestroyIntArray(As<aclIntArray>(it)); }); break;
            case 7: End(kFloats, [](std::uint64_t it) { return aclDestroyFloatArray(As<aclFloatArray>(it)); }); break;
            case 8: End(kBools, [](std::uint64_t it) { return aclDestroyBoolArray(As<aclBoolArray>(it)); }); break;
            case 9: Said(aclGetIntArraySize(As<aclIntArray>(Handle(kInts)), &size)); break;
            case 10: Said(aclGetTensorListSize(As<aclTensorList>(Handle(kTensors)), &size)); break;
            case 11: Keep(kBuffer, Number(aclCreateDataBuffer(arena, Size()))); break;
            case 12: End(kBuffer, [](std::uint64_t it) { return aclDestroyDataBuffer(As<aclDataBuffer>(it)); }); break;
            case 13: {
                const std::uint64_t buffer = Handle(kBuffer);
                size = aclGetDataBufferSize(As<aclDataBuffer>(buffer)) + aclGetDataBufferSizeV2(As<aclDataBuffer>(buffer));
                size += Number(aclGetDataBufferAddr(As<aclDataBuffer>(buffer)));
                break;
            }
            default: Said(aclUpdateDataBuffer(As<aclDataBuffer>(Handle(kBuffer)), arena, 1)); break;
        }
    }

    template <class Call> void PhaseOne(Call call)
    {
        std::uint64_t size = kUntouched;
        aclOpExecutor *executor = As<aclOpExecutor>(kUntouched);
        if (Said(call(&size, &executor)) == 0) {
            Keep(kExecutor, Number(executor));
        } else if (size != kUntouched || Number(executor) != kUntouched) {
            Fail("a refused phase 1 wrote its outputs", 0);
        }
    }

    void AnyPhaseOne()
    {
        auto tensor = [this] { return As<aclTensor>(Handle(kTensor)); };
        char text[] = "none", other[] = "some other text";
        char *word = Maybe(4) ? nullptr : Maybe(4) ? other : text;
        const std::int64_t number = Maybe(6) ? static_cast<std::int64_t>(One(kAbsurd)) : Below(40) - 1;
        const aclTensor *a = tensor(), *b = tensor(), *c = tensor();
        aclTensor *out = tensor(), *second = tensor();
        switch (Below(6)) {
            case 0: PhaseOne([&](auto... o) { return aclnnGeluBackwardV2GetWorkspaceSize(a, b, word, out, o...); }); break;
            case 1: PhaseOne([&](auto... o) { return aclnnGeluV2GetWorkspaceSize(a, number, out, o...); }); break;
            case 2: PhaseOne([&](auto... o) { return aclnnSmoothL1LossGetWorkspaceSize(a, b, number, 1.0f, out, o...); }); break;
            case 3: PhaseOne([&](auto... o) { return aclnnSmoothL1LossBackwardGetWorkspaceSize(a, b, c, number, -1.0f, out, o...); }); break;
            case 4: PhaseOne([&](auto... o) { return aclnnMoeTokenPermuteGradGetWorkspaceSize(a, b, number, Maybe(4), out, o...); }); break;
            default:
                PhaseOne([&](auto... o) {
                    return aclnnNsaCompressGradGetWorkspaceSize(a, b, c, As<aclIntArray>(Handle(kInts)), 32, number, 0, word, out, second, o...);
                });
        }
    }

    std::uint64_t Memory(std::size_t size)
    {
        void *place = nullptr;
        Said(aclrtSetDevice(0));
        if (Said(aclrtMalloc(&place, size, ACL_MEM_MALLOC_HUGE_FIRST)) != 0) {
            Fail("no memory", static_cast<long>(size));
        }
        return Keep(kDevice, Number(place));
    }

    aclTensor *Vector(std::int64_t count)
    {
        const std::uint64_t place = Memory(static_cast<std::size_t>(count) * sizeof(float));
        return As<aclTensor>(
            Keep(kTensor, Number(aclCreateTensor(&count, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &count, 1, Pointer(place)))));
    }

    // An executor over tensors that fit each other.
    void GoodPhaseOne()
    {
        char text[] = "tanh";
        const std::int64_t count = 1 + Below(9);
        aclTensor *grad = Vector(count), *x = Vector(count), *out = Vector(count);
        PhaseOne([&](auto... o) { return aclnnGeluBackwardV2GetWorkspaceSize(grad, x, text, out, o...); });
        if (Maybe(3)) {
            Said(aclSetAclOpExecutorRepeatable(As<aclOpExecutor>(living_[kExecutor].back())));
        }
    }

    void PhaseTwo()
    {
        const std::uint64_t executor = Handle(kExecutor), size = Size();
        void *workspace = Pointer(Maybe(2) ? 0 : DeviceAddress());
        const aclrtStream stream = Pointer(Handle(kStream));
        auto run = Maybe(6) ? aclnnSmoothL1Loss : aclnnGeluBackwardV2;
        Said(run(workspace, size, As<aclOpExecutor>(executor), stream));
    }

    void Executors()
    {
        const std::uint64_t executor = Handle(kExecutor), index = Maybe(5) ? Size() : random_() % 3;
        aclTensor *tensor = As<aclTensor>(Handle(kTensor));
        void *place = Pointer(Maybe(9) ? 0 : DeviceAddress());
        switch (Below(5)) {
            case 0: Said(aclSetAclOpExecutorRepeatable(As<aclOpExecutor>(executor))); break;
            case 1: Said(aclSetInputTensorAddr(As<aclOpExecutor>(executor), index, tensor, place)); break;
            case 2: Said(aclSetOutputTensorAddr(As<aclOpExecutor>(executor), index, tensor, place)); break;
            case 3: Said(aclSetTensorAddr(As<aclOpExecutor>(executor), index, tensor, place)); break;
            default:
                if (Said(aclDestroyAclOpExecutor(As<aclOpExecutor>(executor))) == 0 && executor != 0) {
                    Gone(kExecutor, executor);
                }
        }
    }

    void Streams()
    {
        aclrtStreamStatus status;
        const aclrtStream stream = Pointer(Handle(kStream));
        switch (Below(7)) {
            case 0:
            case 1: Make(kStream, [](void **made) { return aclrtCreateStream(made); }); break;
            case 2: End(kStream, [](std::uint64_t it) { return aclrtDestroyStream(Pointer(it)); }); break;
            case 3: Said(aclrtSynchronizeStream(stream)); break;
            case 4: Said(aclrtSynchronizeStreamWithTimeout(stream, Below(5) - 2)); break;
            case 5: Said(aclrtStreamQuery(stream, &status)); break;
            default: Said(aclrtStreamWaitEvent(stream, Pointer(Handle(kEvent))));
        }
    }

    void Events()
    {
        float milliseconds = 0;
        aclrtEventRecordedStatus status;
        const aclrtEvent event = Pointer(Handle(kEvent));
        switch (Below(8)) {
            case 0:
            case 1: Make(kEvent, [](void **made) { return aclrtCreateEvent(made); }); break;
            case 2: End(kEvent, [](std::uint64_t it) { return aclrtDestroyEvent(Pointer(it)); }); break;
            case 3: Said(aclrtRecordEvent(event, Pointer(Handle(kStream)))); break;
            case 4: Said(aclrtSynchronizeEvent(event)); break;
            case 5: Said(aclrtQueryEventStatus(event, &status)); break;
            case 6: Said(aclrtResetEvent(event, Pointer(Handle(kStream)))); break;
            default: Said(aclrtEventElapsedTime(&milliseconds, event, Pointer(Handle(kEvent))));
        }
    }

    void Devices()
    {
        std::size_t free_bytes = 0, all_bytes = 0;
        switch (Below(8)) {
            case 0: Make(kContext, [](void **made) { return aclrtCreateContext(made, 0); }); break;
            case 1: End(kContext, [](std::uint64_t it) { return aclrtDestroyContext(Pointer(it)); }); break;
            case 2: Said(aclrtSetCurrentContext(Pointer(Handle(kContext)))); break;
            case 3: Said(aclrtResetDevice(Below(2))); break;
            case 4: Said(aclInit(nullptr)); break;
            case 5: Said(aclFinalize()); break;
            case 6: Said(aclrtGetMemInfo(static_cast<aclrtMemAttr>(Below(3)), &free_bytes, &all_bytes)); break;
            default: Said(aclrtSetDevice(Below(3) - 1));
        }
    }

    // In between, everything right: the results must be right.
    void GoodCall()
    {
        const float grad[] = {1, 2, -1}, x[] = {-1, 0, 2};
        const float expected[] = {-0.08331546933f, 1.0f, -1.085231781f};
        float found[] = {0, 0, 0, 99};
        char text[] = "none";
        std::uint64_t size = 1;
        aclOpExecutor *executor = nullptr;
        aclTensor *a = Vector(3), *b = Vector(3), *out = Vector(3);
        const std::uint64_t places[] = {living_[kDevice].end()[-3], living_[kDevice].end()[-2], living_[kDevice].back()};
        Said(aclrtMemcpy(Pointer(places[0]), 12, grad, 12, ACL_MEMCPY_HOST_TO_DEVICE));
        Said(aclrtMemcpy(Pointer(places[1]), 12, x, 12, ACL_MEMCPY_HOST_TO_DEVICE));
        if (aclnnGeluBackwardV2GetWorkspaceSize(a, b, text, out, &size, &executor) != 0 || size != 0) {
            Fail("a valid call was refused", static_cast<long>(size));
        }
        for (const aclTensor *tensor : {a, b, out}) {
            Said(aclDestroyTensor(tensor));
            Gone(kTensor, Number(tensor));
        }
        const aclrtStream stream = living_[kStream].empty() ? nullptr : Pointer(living_[kStream].back());
        if (aclnnGeluBackwardV2(nullptr, 0, executor, stream) != 0 || aclrtSynchronizeStream(stream) != 0 ||
            aclrtMemcpy(found, 12, Pointer(places[2]), 12, ACL_MEMCPY_DEVICE_TO_HOST) != 0) {
            std::printf("%s\n", aclGetRecentErrMsg());
            Fail("a valid run was refused", 2);
        }
        for (int i = 0; i < 3; ++i) {
            if (!(found[i] - expected[i] < 2e-7f && expected[i] - found[i] < 2e-7f)) {
                Fail("a wrong result", i);
            }
        }
        if (found[3] != 99) {
            Fail("written past the end", 3);
        }
        dead_[kExecutor].push_back(Number(executor));
    }

    void Step()
    {
        switch (Below(22)) {
            case 0: Make(kDevice, [this](void **made) { return aclrtMalloc(made, Tiny(), static_cast<aclrtMemMallocPolicy>(Below(8))); }); break;
            case 1: Memory(static_cast<std::size_t>(1 + Below(80))); break;
            case 2: End(kDevice, [](std::uint64_t it) { return aclrtFree(Pointer(it)); }); break;
            case 3: Make(kHost, [this](void **made) { return aclrtMallocHost(made, Tiny()); }); break;
            case 4: End(kHost, [](std::uint64_t it) { return aclrtFreeHost(Pointer(it)); }); break;
            case 5:
            case 6: Copy(Maybe(2)); break;
            case 7: Set(Maybe(2)); break;
            case 8: Streams(); break;
            case 9: Events(); break;
            case 10:
            case 11: MakeTensor(); break;
            case 12: End(kTensor, [](std::uint64_t it) { return aclDestroyTensor(As<aclTensor>(it)); }); break;
            case 13: Getters(); break;
            case 14: Things(); break;
            case 15: AnyPhaseOne(); break;
            case 16: GoodPhaseOne(); break;
            case 17:
            case 18: PhaseTwo(); break;
            case 19: Executors(); break;
            case 20: Maybe(2) ? Devices() : Redescribe(); break;
            default: GoodCall();
        }
    }

    std::uint64_t Tiny() { return Maybe(6) ? One(kAbsurd) | 1ull << 45 : static_cast<std::uint64_t>(Below(80)); }

    void Redescribe()
    {
        aclTensor *tensor = As<aclTensor>(Handle(kTensor));
        if (Maybe(2)) {
            Said(aclSetRawTensorAddr(tensor, Pointer(DeviceAddress())));
        } else {
            Said(Described([tensor](auto... args) { return aclInitTensor(tensor, args...); }));
        }
    }

    template <class Call> void DestroyAll(Kind kind, Call call)
    {
        for (const std::uint64_t handle : living_[kind]) {
            call(handle);
        }
    }

    // Lists own their members and one-time executors are used up: what is gone already is refused, which is no mistake here.
    void CleanUp()
    {
        DestroyAll(kStream, [](std::uint64_t it) { return aclrtDestroyStream(Pointer(it)); });
        DestroyAll(kEvent, [](std::uint64_t it) { return aclrtDestroyEvent(Pointer(it)); });
        DestroyAll(kExecutor, [](std::uint64_t it) { return aclDestroyAclOpExecutor(As<aclOpExecutor>(it)); });
        DestroyAll(kTensors, [](std::uint64_t it) { return aclDestroyTensorList(As<aclTensorList>(it)); });
        DestroyAll(kScalars, [](std::uint64_t it) { return aclDestroyScalarList(As<aclScalarList>(it)); });
        DestroyAll(kTensor, [](std::uint64_t it) { return aclDestroyTensor(As<aclTensor>(it)); });
        DestroyAll(kScalar, [](std::uint64_t it) { return aclDestroyScalar(As<aclScalar>(it)); });
        DestroyAll(kInts, [](std::uint64_t it) { return aclDestroyIntArray(As<aclIntArray>(it)); });
        DestroyAll(kFloats, [](std::uint64_t it) { return aclDestroyFloatArray(As<aclFloatArray>(it)); });
        DestroyAll(kBools, [](std::uint64_t it) { return aclDestroyBoolArray(As<aclBoolArray>(it)); });
        DestroyAll(kBuffer, [](std::uint64_t it) { return aclDestroyDataBuffer(As<aclDataBuffer>(it)); });
        DestroyAll(kDevice, [](std::uint64_t it) { return aclrtFree(Pointer(it)); });
        DestroyAll(kHost, [](std::uint64_t it) { return aclrtFreeHost(Pointer(it)); });
        DestroyAll(kContext, [](std::uint64_t it) { return aclrtDestroyContext(Pointer(it)); });
        aclrtResetDeviceForce(0);
        aclGetRecentErrMsg();
    }
};

long ResidentKiB()
{
    std::ifstream statm("/proc/self/statm");
    long all = 0, resident = 0;
    statm >> all >> resident;
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

// The registries are behind the libraries, in Python.
void PrintLiving()
{
    auto ensure = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Ensure"));
    auto release = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "PyGILState_Release"));
    auto run = reinterpret_cast<int (*)(const char *, void *)>(dlsym(RTLD_DEFAULT, "PyRun_SimpleStringFlags"));
    std::fflush(stdout);
    const int state = ensure();
    run("from anycann import device\nprint('left:', sum(device.living().values()), flush=True)\n", nullptr);
    release(state);
}

}  // namespace

int main(int, char **words)
{
    const unsigned first = static_cast<unsigned>(std::atoi(words[1])), count = static_cast<unsigned>(std::atoi(words[2]));
    for (char **word = words + 3; *word != nullptr; ++word) {
        documented.insert(std::atoi(*word));
    }
    long early = 0;
    for (sequence = first; sequence < first + count; ++sequence) {
        Player(sequence).Play();
        if (sequence == first + count / 3) {
            early = ResidentKiB();
        }
    }
    std::printf("sequences: %u\ncalls: %ld\n", count, calls);
    for (const auto &row : statuses) {
        std::printf("status %d: %ld\n", row.first, row.second);
    }
    std::printf("growth: %ld KiB of %ld\n", ResidentKiB() - early, early);
    PrintLiving();
    return 0;
}
