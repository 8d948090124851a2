// y = x where x >= 0, slope * x elsewhere, in half, for any length: the last tile of each block is as long as what is left, down to one element.
#include "kernel_operator.h"

class LeakyRelu {
public:
    __aicore__ inline void Init(GM_ADDR x, GM_ADDR y, uint32_t total, uint32_t tile, float slope)
    {
        const uint32_t blocks = AscendC::GetBlockNum(), share = (total + blocks - 1) / blocks;
        const uint32_t first = AscendC::GetBlockIdx() * share;
        count_ = first >= total ? 0 : (total - first < share ? total - first : share);
        tile_ = tile;
        slope_ = slope;
        xGm_.SetGlobalBuffer((__gm__ half*)x + first, count_);
        yGm_.SetGlobalBuffer((__gm__ half*)y + first, count_);
        pipe_.InitBuffer(xQueue_, 2, tile * sizeof(half));
        pipe_.InitBuffer(yQueue_, 2, tile * sizeof(half));
        pipe_.InitBuffer(negative_, tile * sizeof(half));
    }

    __aicore__ inline void Process()
    {
        for (uint32_t start = 0; start < count_; start += tile_) {
            const uint32_t length = count_ - start < tile_ ? count_ - start : tile_;
            CopyIn(start, length);
            Compute(length);
            CopyOut(start, length);
        }
    }

private:
    __aicore__ inline void CopyIn(uint32_t start, uint32_t length)
    {
        AscendC::LocalTensor<half> x = xQueue_.AllocTensor<half>();
        AscendC::DataCopyExtParams copy{1, static_cast<uint32_t>(length * sizeof(half)), 0, 0, 0};
        AscendC::DataCopyPadExtParams<half> pad{false, 0, 0, 0};
        AscendC::DataCopyPad(x, xGm_[start], copy, pad);
        xQueue_.EnQue(x);
    }

    __aicore__ inline void Compute(uint32_t length)
    {
        AscendC::LocalTensor<half> x = xQueue_.DeQue<half>();
        AscendC::LocalTensor<half> y = yQueue_.AllocTensor<half>();
        AscendC::LocalTensor<half> negative = negative_.Get<half>();
        AscendC::Mins(negative, x, half(0.0f), length);
        AscendC::Muls(negative, negative, half(slope_), length);
        AscendC::Maxs(y, x, half(0.0f), length);
        AscendC::Add(y, y, negative, length);
        yQueue_.EnQue(y);
        xQueue_.FreeTensor(x);
    }

    __aicore__ inline void CopyOut(uint32_t start, uint32_t length)
    {
        AscendC::LocalTensor<half> y = yQueue_.DeQue<half>();
        AscendC::DataCopyExtParams copy{1, static_cast<uint32_t>(length * sizeof(half)), 0, 0, 0};
        AscendC::DataCopyPad(yGm_[start], y, copy);
        yQueue_.FreeTensor(y);
    }

    AscendC::TPipe pipe_;
    AscendC::TQue<AscendC::QuePosition::VECIN, 2> xQueue_;
    AscendC::TQue<AscendC::QuePosition::VECOUT, 2> yQueue_;
    AscendC::TBuf<AscendC::QuePosition::VECCALC> negative_;
    AscendC::GlobalTensor<half> xGm_, yGm_;
    uint32_t count_, tile_;
    float slope_;
};

extern "C" __global__ __aicore__ void leaky_relu(GM_ADDR x, GM_ADDR y, GM_ADDR tiling)
{
    GET_TILING_DATA(data, tiling);
    LeakyRelu op;
    op.Init(x, y, data.total, data.tile, data.slope);
    op.Process();
}
