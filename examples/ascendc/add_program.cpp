// A program that launches a kernel on host memory: anycann run add_program.cpp
#include <cstdio>

#include "tikicpulib.h"

extern "C" __global__ __aicore__ void add_ten(GM_ADDR x, uint32_t count)
{
    AscendC::TPipe pipe;
    AscendC::TQueBind<AscendC::QuePosition::VECIN, AscendC::QuePosition::VECOUT, 1> queue;
    AscendC::GlobalTensor<int32_t> gm;
    gm.SetGlobalBuffer((__gm__ int32_t*)x + AscendC::GetBlockIdx() * count, count);
    pipe.InitBuffer(queue, 1, count * sizeof(int32_t));
    AscendC::LocalTensor<int32_t> tensor = queue.AllocTensor<int32_t>();
    AscendC::DataCopy(tensor, gm, count);
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(EVENT_ID0);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(EVENT_ID0);
    AscendC::Adds(tensor, tensor, 10, count);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(EVENT_ID0);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(EVENT_ID0);
    AscendC::DataCopy(gm, tensor, count);
    queue.FreeTensor(tensor);
}

int main()
{
    const uint32_t blocks = 4, count = 16;
    auto* x = static_cast<uint8_t*>(AscendC::GmAlloc(blocks * count * sizeof(int32_t)));
    auto* values = reinterpret_cast<int32_t*>(x);
    for (uint32_t i = 0; i < blocks * count; ++i) {
        values[i] = static_cast<int32_t>(i);
    }
    AscendC::SetKernelMode(KernelMode::AIV_MODE);
    ICPU_RUN_KF(add_ten, blocks, x, count);
    std::printf("%d %d %d\n", values[0], values[1], values[blocks * count - 1]);
    AscendC::GmFree(x);
    return 0;
}
