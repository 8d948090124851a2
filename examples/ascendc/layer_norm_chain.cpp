// Forward and backward of a layer normalisation in one kernel: LayerNorm -> LayerNormGrad -> LayerNormGradBeta on a tensor [B, S, H] that fits
// the Unified Buffer. dy is the gradient of the normalised output.
#include "kernel_operator.h"

template <typename T>
class LayerNormChain {
public:
    __aicore__ inline void Init(GM_ADDR x, GM_ADDR gamma, GM_ADDR beta, GM_ADDR dy, GM_ADDR y, GM_ADDR pdX, GM_ADDR pdGamma, GM_ADDR pdBeta,
                                const LayerNormTiling& norm, const LayerNormGradTiling& grad, const LayerNormGradBetaTiling& gradBeta)
    {
        norm_ = norm;
        grad_ = grad;
        gradBeta_ = gradBeta;
        bsh_ = norm.bLength * norm.sLength * norm.hLength;
        bs_ = norm.bLength * norm.sLength;
        h_ = norm.hLength;
        xGm_.SetGlobalBuffer((__gm__ T*)x, bsh_);
        gammaGm_.SetGlobalBuffer((__gm__ T*)gamma, h_);
        betaGm_.SetGlobalBuffer((__gm__ T*)beta, h_);
        dyGm_.SetGlobalBuffer((__gm__ T*)dy, bsh_);
        yGm_.SetGlobalBuffer((__gm__ T*)y, bsh_);
        pdXGm_.SetGlobalBuffer((__gm__ T*)pdX, bsh_);
        pdGammaGm_.SetGlobalBuffer((__gm__ T*)pdGamma, h_);
        pdBetaGm_.SetGlobalBuffer((__gm__ T*)pdBeta, h_);
        pipe_.InitBuffer(inQueue_, 4, bsh_ * sizeof(T));
        pipe_.InitBuffer(outQueue_, 4, bsh_ * sizeof(T));
        pipe_.InitBuffer(mean_, bs_ * sizeof(T));
        pipe_.InitBuffer(variance_, bs_ * sizeof(T));
        pipe_.InitBuffer(normalised_, bsh_ * sizeof(T));
    }

    __aicore__ inline void Process(float epsilon)
    {
        Load(xGm_, bsh_);
        Load(gammaGm_, h_);
        Load(betaGm_, h_);
        Load(dyGm_, bsh_);
        AscendC::LocalTensor<T> x = inQueue_.template DeQue<T>();
        AscendC::LocalTensor<T> gamma = inQueue_.template DeQue<T>();
        AscendC::LocalTensor<T> beta = inQueue_.template DeQue<T>();
        AscendC::LocalTensor<T> dy = inQueue_.template DeQue<T>();
        AscendC::LocalTensor<T> mean = mean_.template Get<T>();
        AscendC::LocalTensor<T> variance = variance_.template Get<T>();
        AscendC::LocalTensor<T> normalised = normalised_.template Get<T>();

        AscendC::LocalTensor<T> y = outQueue_.template AllocTensor<T>();
        AscendC::LayerNorm<T>(y, mean, variance, x, gamma, beta, T(epsilon), norm_);
        outQueue_.EnQue(y);
        AscendC::LocalTensor<T> pdX = outQueue_.template AllocTensor<T>();
        AscendC::LayerNormGrad<T>(pdX, normalised, dy, x, variance, mean, gamma, T(epsilon), grad_);
        outQueue_.EnQue(pdX);
        AscendC::LocalTensor<T> pdGamma = outQueue_.template AllocTensor<T>();
        AscendC::LocalTensor<T> pdBeta = outQueue_.template AllocTensor<T>();
        AscendC::LayerNormGradBeta<T>(pdGamma, pdBeta, normalised, dy, gradBeta_);
        outQueue_.EnQue(pdGamma);
        outQueue_.EnQue(pdBeta);

        inQueue_.FreeTensor(x);
        inQueue_.FreeTensor(gamma);
        inQueue_.FreeTensor(beta);
        inQueue_.FreeTensor(dy);
        Store(yGm_, bsh_);
        Store(pdXGm_, bsh_);
        Store(pdGammaGm_, h_);
        Store(pdBetaGm_, h_);
    }

private:
    __aicore__ inline void Load(const AscendC::GlobalTensor<T>& from, uint32_t count)
    {
        AscendC::LocalTensor<T> tensor = inQueue_.template AllocTensor<T>();
        AscendC::DataCopy(tensor, from, count);
        inQueue_.EnQue(tensor);
    }

    __aicore__ inline void Store(const AscendC::GlobalTensor<T>& to, uint32_t count)
    {
        AscendC::LocalTensor<T> tensor = outQueue_.template DeQue<T>();
        AscendC::DataCopy(to, tensor, count);
        outQueue_.FreeTensor(tensor);
    }

    AscendC::TPipe pipe_;
    AscendC::TQue<AscendC::QuePosition::VECIN, 4> inQueue_;
    AscendC::TQue<AscendC::QuePosition::VECOUT, 4> outQueue_;
    AscendC::TBuf<AscendC::QuePosition::VECCALC> mean_, variance_, normalised_;
    AscendC::GlobalTensor<T> xGm_, gammaGm_, betaGm_, dyGm_, yGm_, pdXGm_, pdGammaGm_, pdBetaGm_;
    LayerNormTiling norm_;
    LayerNormGradTiling grad_;
    LayerNormGradBetaTiling gradBeta_;
    uint32_t bsh_, bs_, h_;
};

template <typename T>
__global__ __aicore__ void layer_norm_chain(GM_ADDR x, GM_ADDR gamma, GM_ADDR beta, GM_ADDR dy, GM_ADDR y, GM_ADDR pdX, GM_ADDR pdGamma, GM_ADDR pdBeta,
                                            float epsilon, GM_ADDR tiling)
{
    GET_TILING_DATA(data, tiling);
    LayerNormChain<T> op;
    op.Init(x, gamma, beta, dy, y, pdX, pdGamma, pdBeta, data.norm, data.grad, data.gradBeta);
    op.Process(epsilon);
}
