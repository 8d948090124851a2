// Every tier 2 instruction on two inputs and one output, chosen by the tiling key. The tests compare with NumPy.
#include "kernel_operator.h"

using namespace AscendC;

template <typename S, typename D, typename F>
__aicore__ inline void Apply(GM_ADDR x, GM_ADDR y, GM_ADDR z, uint32_t in, uint32_t out, F f)
{
    TPipe pipe;
    TQue<QuePosition::VECIN, 1> xQueue, yQueue;
    TQue<QuePosition::VECOUT, 1> zQueue;
    TBuf<> work;
    GlobalTensor<S> xGm, yGm;
    GlobalTensor<D> zGm;
    xGm.SetGlobalBuffer((__gm__ S*)x, in);
    yGm.SetGlobalBuffer((__gm__ S*)y, in);
    zGm.SetGlobalBuffer((__gm__ D*)z, out);
    pipe.InitBuffer(xQueue, 1, in * sizeof(S));
    pipe.InitBuffer(yQueue, 1, in * sizeof(S));
    pipe.InitBuffer(zQueue, 1, out * sizeof(D));
    pipe.InitBuffer(work, 4096);
    LocalTensor<S> a = xQueue.AllocTensor<S>();
    DataCopy(a, xGm, in);
    xQueue.EnQue(a);
    LocalTensor<S> b = yQueue.AllocTensor<S>();
    DataCopy(b, yGm, in);
    yQueue.EnQue(b);
    a = xQueue.DeQue<S>();
    b = yQueue.DeQue<S>();
    LocalTensor<D> d = zQueue.AllocTensor<D>();
    Duplicate(d.template ReinterpretCast<int16_t>(), int16_t(0), static_cast<int64_t>(out * sizeof(D) / 2));
    f(d, a, b, work);
    zQueue.EnQue(d);
    d = zQueue.DeQue<D>();
    DataCopy(zGm, d, out);
    zQueue.FreeTensor(d);
    xQueue.FreeTensor(a);
    yQueue.FreeTensor(b);
}

#define FORM(KEY, S, D, ...)                                                                                                              \
    if (TILING_KEY_IS(KEY)) {                                                                                                             \
        Apply<S, D>(x, y, z, in, out, [&]([[maybe_unused]] LocalTensor<D>& d, [[maybe_unused]] LocalTensor<S>& a,                          \
                                          [[maybe_unused]] LocalTensor<S>& b, [[maybe_unused]] TBuf<>& work) { __VA_ARGS__; });            \
    }

template <typename T>
__global__ __aicore__ void arithmetic(GM_ADDR x, GM_ADDR y, GM_ADDR z, uint32_t in, uint32_t out, uint32_t n)
{
    const uint64_t words[2] = {0x5555555555555555ull, sizeof(T) == 2 ? 0xffull : 0ull};
    const uint64_t some = 64 / sizeof(T) + 1;
    BinaryRepeatParams two;
    UnaryRepeatParams one;
    FORM(0, T, T, Add(d, a, b, n)) FORM(1, T, T, Sub(d, a, b, n)) FORM(2, T, T, Mul(d, a, b, n)) FORM(3, T, T, Max(d, a, b, n)) FORM(4, T, T, Min(d, a, b, n))
    FORM(5, T, T, Adds(d, a, T(3), n)) FORM(6, T, T, Muls(d, a, T(3), n)) FORM(7, T, T, Maxs(d, a, T(1), n)) FORM(8, T, T, Mins(d, a, T(1), n))
    FORM(20, T, T, Add(d, a, b, words, 3, two)) FORM(21, T, T, Sub(d, a, b, some, 3, two)) FORM(22, T, T, Mul(d, a, b, words, 3, two))
    FORM(23, T, T, Max(d, a, b, some, 3, two)) FORM(24, T, T, Min(d, a, b, words, 3, two))
    FORM(25, T, T, Adds(d, a, T(3), words, 3, one)) FORM(26, T, T, Muls(d, a, T(3), some, 3, one)) FORM(27, T, T, Maxs(d, a, T(1), words, 3, one))
    FORM(28, T, T, Mins(d, a, T(1), some, 3, one)) FORM(29, T, T, Duplicate(d, T(9), words, 3, 1, 8)) FORM(30, T, T, Duplicate(d, T(9), n))
    FORM(31, T, T, CreateVecIndex(d, T(5), n))
    // Blocks in another order: every second block of the source, the same source block for a whole repeat, results side by side.
    FORM(32, T, T, Adds(d, a, T(0), static_cast<uint64_t>(some), 2, UnaryRepeatParams(1, 2, 8, 1)))
    FORM(33, T, T, Add(d, a, b, words, 2, BinaryRepeatParams(2, 1, 0, 12, 8, 1)))
}

template <typename T>
__global__ __aicore__ void floating(GM_ADDR x, GM_ADDR y, GM_ADDR z, uint32_t in, uint32_t out, uint32_t n)
{
    const uint64_t words[2] = {0x5555555555555555ull, sizeof(T) == 2 ? 0xffull : 0ull};
    const uint64_t all = 256 / sizeof(T);
    BinaryRepeatParams two;
    UnaryRepeatParams one;
    FORM(0, T, T, Div(d, a, b, n)) FORM(1, T, T, Abs(d, a, n)) FORM(2, T, T, Exp(d, a, n)) FORM(3, T, T, Ln(d, a, n)) FORM(4, T, T, Sqrt(d, a, n))
    FORM(5, T, T, Rsqrt(d, a, n)) FORM(6, T, T, Reciprocal(d, a, n)) FORM(7, T, T, Relu(d, a, n)) FORM(8, T, T, LeakyRelu(d, a, T(0.125f), n))
    FORM(9, T, T, Axpy(d, a, T(2.5f), n)) FORM(20, T, T, Div(d, a, b, words, 3, two)) FORM(21, T, T, Abs(d, a, words, 3, one))
    FORM(22, T, T, Exp(d, a, words, 3, one)) FORM(29, T, T, Axpy(d, a, T(2.5f), words, 3, one))
    FORM(40, T, uint8_t, Compare(d, a, b, CMPMODE::LT, n)) FORM(41, T, uint8_t, Compare(d, a, b, CMPMODE::GT, n))
    FORM(42, T, uint8_t, Compare(d, a, b, CMPMODE::EQ, n)) FORM(43, T, uint8_t, Compare(d, a, b, CMPMODE::LE, n))
    FORM(44, T, uint8_t, Compare(d, a, b, CMPMODE::GE, n)) FORM(45, T, uint8_t, Compare(d, a, b, CMPMODE::NE, n))
    FORM(46, T, uint8_t, CompareScalar(d, a, T(0), CMPMODE::GT, n)) FORM(47, T, uint8_t, Compare(d, a, b, CMPMODE::LT, words, 2, two))
    FORM(48, T, uint8_t, CompareScalar(d, a, T(0), CMPMODE::GT, words, 2, one))
    FORM(50, T, T, LocalTensor<uint8_t> m = work.Get<uint8_t>(); Compare(m, a, b, CMPMODE::LT, n); Select(d, m, a, b, SELMODE::VSEL_TENSOR_TENSOR_MODE, n))
    FORM(51, T, T, LocalTensor<uint8_t> m = work.Get<uint8_t>(); Compare(m, a, b, CMPMODE::LT, n); Select(d, m, a, T(7), SELMODE::VSEL_TENSOR_SCALAR_MODE, n))
    FORM(52, T, T, LocalTensor<uint8_t> m = work.Get<uint8_t>(); Compare(m, a, b, CMPMODE::LT, n); Select(d, m, a, b, SELMODE::VSEL_CMPMASK_SPR, n))
    FORM(53, T, T, LocalTensor<uint8_t> m = work.Get<uint8_t>(); Compare(m, a, b, CMPMODE::LT, n);
         Select(d, m, a, b, SELMODE::VSEL_TENSOR_TENSOR_MODE, all, n / all, two))
    FORM(60, T, T, ReduceSum(d, a, work.Get<T>(), n)) FORM(61, T, T, ReduceMax(d, a, work.Get<T>(), n, true)) FORM(62, T, T, ReduceMin(d, a, work.Get<T>(), n, true))
    FORM(63, T, T, WholeReduceSum(d, a, all, 3, 1, 1, 8)) FORM(64, T, T, WholeReduceMax(d, a, all, 3, 1, 1, 8)) FORM(65, T, T, BlockReduceSum(d, a, 3, all, 1, 1, 8))
    FORM(66, T, T, ReduceSum(d, a, work.Get<T>(), words, 3, 8)) FORM(67, T, T, WholeReduceSum(d, a, words, 3, 2, 1, 8))
    FORM(68, T, T, WholeReduceMin(d, a, words, 3, 1, 1, 8, ReduceOrder::ORDER_ONLY_VALUE)) FORM(69, T, T, BlockReduceMax(d, a, 3, all, 1, 1, 8))
    FORM(70, T, T, BlockReduceMin(d, a, 3, all, 1, 1, 8))
    FORM(71, T, T, LocalTensor<int32_t> index = work.Get<int32_t>(); CreateVecIndex(index, 0, n); Muls(index, index, int32_t(-static_cast<int>(sizeof(T))), n);
         Adds(index, index, int32_t((n - 1) * sizeof(T)), n); Gather(d, a, index.ReinterpretCast<uint32_t>(), 0, n))
    FORM(73, T, T, LocalTensor<int32_t> index = work.Get<int32_t>(); CreateVecIndex(index, 0, 2 * all); Muls(index, index, int32_t(sizeof(T)), 2 * all);
         Gather(d, a, index.ReinterpretCast<uint32_t>(), 2 * sizeof(T), words, 2, 8))
    FORM(74, T, T, ReduceMax(d, a, work.Get<T>(), words, 3, 8, true)) FORM(75, T, T, ReduceMin(d, a, work.Get<T>(), words, 3, 8, true))
    FORM(72, T, T, Brcb(d, a, 2, BrcbRepeatParams(1, 8)))
}

extern "C" __global__ __aicore__ void bits(GM_ADDR x, GM_ADDR y, GM_ADDR z, uint32_t in, uint32_t out, uint32_t n)
{
    const uint64_t words[2] = {0x5555555555555555ull, 0xffull};
    UnaryRepeatParams one;
    FORM(0, uint16_t, uint16_t, And(d, a, b, n)) FORM(1, uint16_t, uint16_t, Or(d, a, b, n)) FORM(2, uint16_t, uint16_t, Not(d, a, n))
    FORM(3, uint16_t, uint16_t, ShiftLeft(d, a, uint16_t(3), n)) FORM(4, uint16_t, uint16_t, ShiftRight(d, a, uint16_t(3), n))
    FORM(5, int32_t, int32_t, ShiftLeft(d, a, 3, n)) FORM(6, int32_t, int32_t, ShiftRight(d, a, 3, n))
    FORM(7, uint16_t, uint16_t, Not(d, a, words, 2, one))
}

template <typename S, typename D>
__global__ __aicore__ void cast(GM_ADDR x, GM_ADDR y, GM_ADDR z, uint32_t in, uint32_t out, uint32_t n)
{
    const uint64_t lanes = 256 / (sizeof(S) > sizeof(D) ? sizeof(S) : sizeof(D));
    const int perRepeat = static_cast<int>(lanes);
    FORM(0, S, D, Cast(d, a, RoundMode::CAST_NONE, n)) FORM(1, S, D, Cast(d, a, RoundMode::CAST_RINT, n)) FORM(2, S, D, Cast(d, a, RoundMode::CAST_FLOOR, n))
    FORM(3, S, D, Cast(d, a, RoundMode::CAST_CEIL, n)) FORM(4, S, D, Cast(d, a, RoundMode::CAST_ROUND, n)) FORM(5, S, D, Cast(d, a, RoundMode::CAST_TRUNC, n))
    FORM(6, S, D, Cast(d, a, RoundMode::CAST_ODD, n))
    FORM(7, S, D, Cast(d, a, RoundMode::CAST_RINT, lanes, n / lanes, UnaryRepeatParams(1, 1, perRepeat * sizeof(D) / 32, perRepeat * sizeof(S) / 32)))
}
