// Softmax of each row of a float matrix. The largest element and the sum come back to the scalar unit, so flags order it with the vector unit.
#include "kernel_operator.h"

class Softmax {
public:
    __aicore__ inline void Init(GM_ADDR x, GM_ADDR y, uint32_t rows, uint32_t width)
    {
        rows_ = rows;
        width_ = width;
        xGm_.SetGlobalBuffer((__gm__ float*)x, rows * width);
        yGm_.SetGlobalBuffer((__gm__ float*)y, rows * width);
        pipe_.InitBuffer(xQueue_, 1, width * sizeof(float));
        pipe_.InitBuffer(yQueue_, 1, width * sizeof(float));
        pipe_.InitBuffer(work_, width * sizeof(float));
        pipe_.InitBuffer(result_, 32);
    }

    __aicore__ inline void Process()
    {
        for (uint32_t row = AscendC::GetBlockIdx(); row < rows_; row += AscendC::GetBlockNum()) {
            CopyIn(row);
            Compute();
            CopyOut(row);
        }
    }

private:
    __aicore__ inline void CopyIn(uint32_t row)
    {
        AscendC::LocalTensor<float> x = xQueue_.AllocTensor<float>();
        AscendC::DataCopy(x, xGm_[row * width_], width_);
        xQueue_.EnQue(x);
    }

    __aicore__ inline float Read(const AscendC::LocalTensor<float>& result)
    {
        event_t done = static_cast<event_t>(AscendC::GetTPipePtr()->FetchEventID(AscendC::HardEvent::V_S));
        AscendC::SetFlag<AscendC::HardEvent::V_S>(done);
        AscendC::WaitFlag<AscendC::HardEvent::V_S>(done);
        return result.GetValue(0);
    }

    __aicore__ inline void Compute()
    {
        AscendC::LocalTensor<float> x = xQueue_.DeQue<float>();
        AscendC::LocalTensor<float> y = yQueue_.AllocTensor<float>();
        AscendC::LocalTensor<float> work = work_.Get<float>();
        AscendC::LocalTensor<float> result = result_.Get<float>();
        AscendC::ReduceMax(result, x, work, width_);
        const float largest = Read(result);
        AscendC::Adds(y, x, -largest, width_);
        AscendC::Exp(y, y, width_);
        AscendC::ReduceSum(result, y, work, width_);
        const float sum = Read(result);
        AscendC::Muls(y, y, 1.0f / sum, width_);
        yQueue_.EnQue(y);
        xQueue_.FreeTensor(x);
    }

    __aicore__ inline void CopyOut(uint32_t row)
    {
        AscendC::LocalTensor<float> y = yQueue_.DeQue<float>();
        AscendC::DataCopy(yGm_[row * width_], y, width_);
        yQueue_.FreeTensor(y);
    }

    AscendC::TPipe pipe_;
    AscendC::TQue<AscendC::QuePosition::VECIN, 1> xQueue_;
    AscendC::TQue<AscendC::QuePosition::VECOUT, 1> yQueue_;
    AscendC::TBuf<AscendC::QuePosition::VECCALC> work_, result_;
    AscendC::GlobalTensor<float> xGm_, yGm_;
    uint32_t rows_, width_;
};

extern "C" __global__ __aicore__ void softmax(GM_ADDR x, GM_ADDR y, GM_ADDR tiling)
{
    GET_TILING_DATA(data, tiling);
    Softmax op;
    op.Init(x, y, data.rows, data.width);
    op.Process();
}
