// Qualifiers, positions, pipes, events, modes and parameter structs under their public names.
#ifndef ANYCANN_EMU_NAMES_H
#define ANYCANN_EMU_NAMES_H

#include "emu/core.h"
#include "emu/half.h"

#define __aicore__
#define __global__ __attribute__(())  // changes nothing; in a preprocessed text it is what tells kernels from other functions
#define __gm__
#define __ubuf__
#define __inout_pipe__(...)
#ifndef GM_ADDR
#define GM_ADDR __gm__ uint8_t*
#endif

namespace AscendC {

using ::bfloat16_t;
using ::half;

template <typename A, typename B>
struct IsSameType : std::is_same<A, B> {};

enum class TPosition : uint8_t { GM, A1, A2, B1, B2, C1, C2, CO1, CO2, VECIN, VECOUT, VECCALC, LCM = VECCALC, SPM, SHM = SPM, TSCM, MAX };
using QuePosition = TPosition;

enum class HardEvent : uint8_t {
    MTE2_V, V_MTE2, V_MTE3, MTE3_V, MTE2_S, S_MTE2, V_S, S_V, S_MTE3, MTE3_S, MTE2_MTE3, MTE3_MTE2,
    M_V, V_M, MTE1_MTE2, MTE2_MTE1, M_MTE1, MTE1_M, FIX_M, M_FIX,
};

enum class RoundMode : uint8_t { CAST_NONE, CAST_RINT, CAST_FLOOR, CAST_CEIL, CAST_ROUND, CAST_TRUNC, CAST_ODD };
enum class CMPMODE : uint8_t { LT, GT, EQ, LE, GE, NE };
enum class SELMODE : uint8_t { VSEL_CMPMASK_SPR, VSEL_TENSOR_SCALAR_MODE, VSEL_TENSOR_TENSOR_MODE };
enum class ReduceOrder : uint8_t { ORDER_VALUE_INDEX, ORDER_INDEX_VALUE, ORDER_ONLY_VALUE, ORDER_ONLY_INDEX };
enum class MemDsbT : uint8_t { ALL, DDR, UB, SEQ };
enum class CacheMode : uint8_t { CACHE_MODE_DISABLE, CACHE_MODE_NORMAL };

struct DataCopyParams {  // lengths and gaps in 32-byte blocks
    uint16_t blockCount = 1;
    uint16_t blockLen = 0;
    uint16_t srcStride = 0;
    uint16_t dstStride = 0;
    DataCopyParams() = default;
    DataCopyParams(uint16_t count, uint16_t len, uint16_t src, uint16_t dst) : blockCount(count), blockLen(len), srcStride(src), dstStride(dst) {}
};

struct DataCopyExtParams {  // length in bytes; gaps in bytes on the GM side, in 32-byte blocks on the UB side
    uint16_t blockCount = 1;
    uint32_t blockLen = 0;
    uint32_t srcStride = 0;
    uint32_t dstStride = 0;
    uint32_t rsv = 0;
    DataCopyExtParams() = default;
    DataCopyExtParams(uint16_t count, uint32_t len, uint32_t src, uint32_t dst, uint32_t reserved)
        : blockCount(count), blockLen(len), srcStride(src), dstStride(dst), rsv(reserved) {}
};

struct DataCopyPadParams {
    bool isPad = false;
    uint8_t leftPadding = 0;
    uint8_t rightPadding = 0;
    uint64_t paddingValue = 0;
    DataCopyPadParams() = default;
    DataCopyPadParams(bool pad, uint8_t left, uint8_t right, uint64_t value) : isPad(pad), leftPadding(left), rightPadding(right), paddingValue(value) {}
};

template <typename T>
struct DataCopyPadExtParams {
    bool isPad = false;
    uint8_t leftPadding = 0;
    uint8_t rightPadding = 0;
    T paddingValue = T(0);
    DataCopyPadExtParams() = default;
    DataCopyPadExtParams(bool pad, uint8_t left, uint8_t right, T value) : isPad(pad), leftPadding(left), rightPadding(right), paddingValue(value) {}
};

// Strides of the mask + repeat forms, in 32-byte blocks. int rather than uint8_t, so that a value above 255 is seen and reported.
struct UnaryRepeatParams {
    int dstBlkStride = 1, srcBlkStride = 1, dstRepStride = 8, srcRepStride = 8;
    UnaryRepeatParams() = default;
    UnaryRepeatParams(int dstBlk, int srcBlk, int dstRep, int srcRep) : dstBlkStride(dstBlk), srcBlkStride(srcBlk), dstRepStride(dstRep), srcRepStride(srcRep) {}
};

struct BinaryRepeatParams {
    int dstBlkStride = 1, src0BlkStride = 1, src1BlkStride = 1, dstRepStride = 8, src0RepStride = 8, src1RepStride = 8;
    BinaryRepeatParams() = default;
    BinaryRepeatParams(int dstBlk, int src0Blk, int src1Blk, int dstRep, int src0Rep, int src1Rep)
        : dstBlkStride(dstBlk), src0BlkStride(src0Blk), src1BlkStride(src1Blk), dstRepStride(dstRep), src0RepStride(src0Rep), src1RepStride(src1Rep) {}
};

struct BrcbRepeatParams {
    int dstBlkStride = 1, dstRepStride = 8;
    BrcbRepeatParams() = default;
    BrcbRepeatParams(int dstBlk, int dstRep) : dstBlkStride(dstBlk), dstRepStride(dstRep) {}
};

// Kinds of cores, and which one this is: g_coreType below.
constexpr int32_t MIX = 0;
constexpr int32_t AIC = 1;
constexpr int32_t AIV = 2;

using TEventID = int8_t;

constexpr int32_t ONE_BLK_SIZE = 32;
constexpr int32_t DEFAULT_C0_SIZE = 32;
constexpr int32_t ONE_REPEAT_BYTE_SIZE = 256;
constexpr int32_t DEFAULT_BLK_NUM = 8;
constexpr int32_t DEFAULT_BLK_STRIDE = 1;
constexpr int32_t DEFAULT_REPEAT_STRIDE = 8;
constexpr int32_t MAX_REPEAT_TIMES = 255;
constexpr uint64_t FULL_MASK = 0xffffffffffffffffull;

template <typename T> constexpr T AlignUp(T value, T step) { return (value + step - 1) / step * step; }
template <typename T> constexpr T DivCeil(T value, T step) { return (value + step - 1) / step; }
template <typename T> constexpr T CeilDivision(T value, T step) { return (value + step - 1) / step; }

}  // namespace AscendC

constexpr int32_t g_coreType = AscendC::AIV;
#define ASCEND_IS_AIV constexpr (g_coreType == AscendC::AIV)
#define ASCEND_IS_AIC constexpr (g_coreType == AscendC::AIC)

enum event_t : int { EVENT_ID0, EVENT_ID1, EVENT_ID2, EVENT_ID3, EVENT_ID4, EVENT_ID5, EVENT_ID6, EVENT_ID7 };
enum pipe_t : int { PIPE_S, PIPE_V, PIPE_M, PIPE_MTE1, PIPE_MTE2, PIPE_MTE3, PIPE_ALL, PIPE_FIX };

namespace AscendC {
using ::event_t;
using ::EVENT_ID0;
using ::EVENT_ID1;
using ::EVENT_ID2;
using ::EVENT_ID3;
using ::EVENT_ID4;
using ::EVENT_ID5;
using ::EVENT_ID6;
using ::EVENT_ID7;
using ::pipe_t;
using ::PIPE_ALL;
using ::PIPE_FIX;
using ::PIPE_M;
using ::PIPE_MTE1;
using ::PIPE_MTE2;
using ::PIPE_MTE3;
using ::PIPE_S;
using ::PIPE_V;
}  // namespace AscendC

namespace anycann {
namespace emu {

struct Events {
    const char* name;
    Pipe from, to;
    bool vector;
};

constexpr Events EventOf(AscendC::HardEvent event)
{
    using E = AscendC::HardEvent;
    switch (event) {
        case E::MTE2_V: return {"MTE2_V", Pipe::MTE2, Pipe::V, true};
        case E::V_MTE2: return {"V_MTE2", Pipe::V, Pipe::MTE2, true};
        case E::V_MTE3: return {"V_MTE3", Pipe::V, Pipe::MTE3, true};
        case E::MTE3_V: return {"MTE3_V", Pipe::MTE3, Pipe::V, true};
        case E::MTE2_S: return {"MTE2_S", Pipe::MTE2, Pipe::S, true};
        case E::S_MTE2: return {"S_MTE2", Pipe::S, Pipe::MTE2, true};
        case E::V_S: return {"V_S", Pipe::V, Pipe::S, true};
        case E::S_V: return {"S_V", Pipe::S, Pipe::V, true};
        case E::S_MTE3: return {"S_MTE3", Pipe::S, Pipe::MTE3, true};
        case E::MTE3_S: return {"MTE3_S", Pipe::MTE3, Pipe::S, true};
        case E::MTE2_MTE3: return {"MTE2_MTE3", Pipe::MTE2, Pipe::MTE3, true};
        case E::MTE3_MTE2: return {"MTE3_MTE2", Pipe::MTE3, Pipe::MTE2, true};
        default: return {"", Pipe::S, Pipe::S, false};
    }
}

template <typename...>
struct AlwaysFalse : std::false_type {};

template <typename T>
struct Same {  // keeps a scalar argument out of template deduction: it converts to the tensor's type
    using type = T;
};
template <typename T>
using SameT = typename Same<T>::type;

// Element types an instruction takes; used in static_asserts that name the instruction.
template <typename T, typename... Allowed>
constexpr bool OneOf = (std::is_same<T, Allowed>::value || ...);

// How elements are added, by the name of a type: integers of one size add alike.
template <typename T>
constexpr const char* AdditionType()
{
    if (std::is_same<T, half>::value) return "half";
    if (std::is_same<T, bfloat16_t>::value) return "bfloat16_t";
    if (std::is_floating_point<T>::value) return sizeof(T) == 4 ? "float" : "double";
    return sizeof(T) == 1 ? "int8_t" : sizeof(T) == 2 ? "int16_t" : sizeof(T) == 4 ? "int32_t" : "int64_t";
}

}  // namespace emu
}  // namespace anycann

#endif
