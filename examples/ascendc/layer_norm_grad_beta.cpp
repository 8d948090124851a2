// LayerNormGradBeta alone, for half and float, with the temporary buffer from TPipe or from what is left, with and without reuse of inputDy.
#include "kernel_operator.h"

template <typename T, bool isReuseSource, bool sharedTmp>
class GradBeta {
public:
    __aicore__ inline void Init(GM_ADDR pdGamma, GM_ADDR pdBeta, GM_ADDR resForGamma, GM_ADDR inputDy, const LayerNormGradBetaTiling& tiling)
    {
        tiling_ = tiling;
        bsh_ = tiling.bLength * tiling.sLength * tiling.hLength;
        h_ = tiling.hLength;
        resGm_.SetGlobalBuffer((__gm__ T*)resForGamma, bsh_);
        dyGm_.SetGlobalBuffer((__gm__ T*)inputDy, bsh_);
        pdGammaGm_.SetGlobalBuffer((__gm__ T*)pdGamma, h_);
        pdBetaGm_.SetGlobalBuffer((__gm__ T*)pdBeta, h_);
        pipe_.InitBuffer(resQueue_, 1, bsh_ * sizeof(T));
        pipe_.InitBuffer(dyQueue_, 1, bsh_ * sizeof(T));
        pipe_.InitBuffer(pdGammaQueue_, 1, h_ * sizeof(T));
        pipe_.InitBuffer(pdBetaQueue_, 1, h_ * sizeof(T));
        if (sharedTmp) {
            pipe_.InitBuffer(tmp_, tiling.stackBufferSize * sizeof(float));
        }
    }

    __aicore__ inline void Process()
    {
        CopyIn();
        Compute();
        CopyOut();
    }

private:
    __aicore__ inline void CopyIn()
    {
        AscendC::LocalTensor<T> res = resQueue_.template AllocTensor<T>();
        AscendC::LocalTensor<T> dy = dyQueue_.template AllocTensor<T>();
        AscendC::DataCopy(res, resGm_, bsh_);
        AscendC::DataCopy(dy, dyGm_, bsh_);
        resQueue_.EnQue(res);
        dyQueue_.EnQue(dy);
    }

    __aicore__ inline void Compute()
    {
        AscendC::LocalTensor<T> res = resQueue_.template DeQue<T>();
        AscendC::LocalTensor<T> dy = dyQueue_.template DeQue<T>();
        AscendC::LocalTensor<T> pdGamma = pdGammaQueue_.template AllocTensor<T>();
        AscendC::LocalTensor<T> pdBeta = pdBetaQueue_.template AllocTensor<T>();
        if (sharedTmp) {
            AscendC::LocalTensor<uint8_t> tmp = tmp_.template Get<uint8_t>();
            AscendC::LayerNormGradBeta<T, isReuseSource>(pdGamma, pdBeta, res, dy, tmp, tiling_);
        } else {
            AscendC::LayerNormGradBeta<T, isReuseSource>(pdGamma, pdBeta, res, dy, tiling_);
        }
        pdGammaQueue_.EnQue(pdGamma);
        pdBetaQueue_.EnQue(pdBeta);
        resQueue_.FreeTensor(res);
        dyQueue_.FreeTensor(dy);
    }

    __aicore__ inline void CopyOut()
    {
        AscendC::LocalTensor<T> pdGamma = pdGammaQueue_.template DeQue<T>();
        AscendC::LocalTensor<T> pdBeta = pdBetaQueue_.template DeQue<T>();
        AscendC::DataCopy(pdGammaGm_, pdGamma, h_);
        AscendC::DataCopy(pdBetaGm_, pdBeta, h_);
        pdGammaQueue_.FreeTensor(pdGamma);
        pdBetaQueue_.FreeTensor(pdBeta);
    }

    AscendC::TPipe pipe_;
    AscendC::TQue<AscendC::QuePosition::VECIN, 1> resQueue_, dyQueue_;
    AscendC::TQue<AscendC::QuePosition::VECOUT, 1> pdGammaQueue_, pdBetaQueue_;
    AscendC::TBuf<AscendC::QuePosition::VECCALC> tmp_;
    AscendC::GlobalTensor<T> resGm_, dyGm_, pdGammaGm_, pdBetaGm_;
    LayerNormGradBetaTiling tiling_;
    uint32_t bsh_, h_;
};

template <typename T, bool isReuseSource, bool sharedTmp>
__global__ __aicore__ void layer_norm_grad_beta(GM_ADDR pdGamma, GM_ADDR pdBeta, GM_ADDR resForGamma, GM_ADDR inputDy, GM_ADDR tiling)
{
    GET_TILING_DATA(data, tiling);
    GradBeta<T, isReuseSource, sharedTmp> op;
    op.Init(pdGamma, pdBeta, resForGamma, inputDy, data.layerNormGradBetaTiling);
    op.Process();
}
