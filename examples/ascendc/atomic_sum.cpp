// sum[i] = sum over blocks of x[block, i]: block 0 clears the result, all wait for it, then every block adds its row atomically.
#include "kernel_operator.h"

extern "C" __global__ __aicore__ void atomic_sum(GM_ADDR x, GM_ADDR sum, uint32_t width)
{
    AscendC::TPipe pipe;
    AscendC::TQueBind<AscendC::QuePosition::VECIN, AscendC::QuePosition::VECOUT, 1> rowQueue;
    AscendC::TQue<AscendC::QuePosition::VECOUT, 1> zeroQueue;
    AscendC::GlobalTensor<float> xGm, sumGm;
    xGm.SetGlobalBuffer((__gm__ float*)x + AscendC::GetBlockIdx() * width, width);
    sumGm.SetGlobalBuffer((__gm__ float*)sum, width);
    pipe.InitBuffer(rowQueue, 1, width * sizeof(float));
    pipe.InitBuffer(zeroQueue, 1, width * sizeof(float));

    if (AscendC::GetBlockIdx() == 0) {
        AscendC::LocalTensor<float> zero = zeroQueue.AllocTensor<float>();
        AscendC::Duplicate(zero, 0.0f, width);
        zeroQueue.EnQue(zero);
        zero = zeroQueue.DeQue<float>();
        AscendC::DataCopy(sumGm, zero, width);
        zeroQueue.FreeTensor(zero);
    }
    AscendC::SyncAll();

    AscendC::LocalTensor<float> row = rowQueue.AllocTensor<float>();
    AscendC::DataCopy(row, xGm, width);
    rowQueue.EnQue(row);
    row = rowQueue.DeQue<float>();
    AscendC::SetAtomicAdd<float>();
    AscendC::DataCopy(sumGm, row, width);
    AscendC::SetAtomicNone();
    rowQueue.FreeTensor(row);
}
