// z = x + y in float. Every block takes an equal share, in tiles, with two buffers in each queue so that copies and sums overlap.
#include "kernel_operator.h"

class Add {
public:
    __aicore__ inline void Init(GM_ADDR x, GM_ADDR y, GM_ADDR z, uint32_t share, uint32_t tile)
    {
        share_ = share;
        tile_ = tile;
        const uint32_t first = AscendC::GetBlockIdx() * share;
        xGm_.SetGlobalBuffer((__gm__ float*)x + first, share);
        yGm_.SetGlobalBuffer((__gm__ float*)y + first, share);
        zGm_.SetGlobalBuffer((__gm__ float*)z + first, share);
        pipe_.InitBuffer(xQueue_, 2, tile * sizeof(float));
        pipe_.InitBuffer(yQueue_, 2, tile * sizeof(float));
        pipe_.InitBuffer(zQueue_, 2, tile * sizeof(float));
    }

    __aicore__ inline void Process()
    {
        for (uint32_t start = 0; start < share_; start += tile_) {
            CopyIn(start);
            Compute();
            CopyOut(start);
        }
    }

private:
    __aicore__ inline void CopyIn(uint32_t start)
    {
        AscendC::LocalTensor<float> x = xQueue_.AllocTensor<float>();
        AscendC::LocalTensor<float> y = yQueue_.AllocTensor<float>();
        AscendC::DataCopy(x, xGm_[start], tile_);
        AscendC::DataCopy(y, yGm_[start], tile_);
        xQueue_.EnQue(x);
        yQueue_.EnQue(y);
    }

    __aicore__ inline void Compute()
    {
        AscendC::LocalTensor<float> x = xQueue_.DeQue<float>();
        AscendC::LocalTensor<float> y = yQueue_.DeQue<float>();
        AscendC::LocalTensor<float> z = zQueue_.AllocTensor<float>();
        AscendC::Add(z, x, y, tile_);
        zQueue_.EnQue(z);
        xQueue_.FreeTensor(x);
        yQueue_.FreeTensor(y);
    }

    __aicore__ inline void CopyOut(uint32_t start)
    {
        AscendC::LocalTensor<float> z = zQueue_.DeQue<float>();
        AscendC::DataCopy(zGm_[start], z, tile_);
        zQueue_.FreeTensor(z);
    }

    AscendC::TPipe pipe_;
    AscendC::TQue<AscendC::QuePosition::VECIN, 2> xQueue_, yQueue_;
    AscendC::TQue<AscendC::QuePosition::VECOUT, 2> zQueue_;
    AscendC::GlobalTensor<float> xGm_, yGm_, zGm_;
    uint32_t share_, tile_;
};

extern "C" __global__ __aicore__ void add(GM_ADDR x, GM_ADDR y, GM_ADDR z, GM_ADDR tiling)
{
    GET_TILING_DATA(data, tiling);
    Add op;
    op.Init(x, y, z, data.share, data.tile);
    op.Process();
}
