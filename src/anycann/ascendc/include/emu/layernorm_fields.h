// The fields of the layer-norm tilings, all uint32_t, in order: written once for the kernel structs, the host classes and Python.
#ifndef ANYCANN_EMU_LAYERNORM_FIELDS_H
#define ANYCANN_EMU_LAYERNORM_FIELDS_H

#define ANYCANN_LayerNormGradBetaTiling(F) \
    F(stackBufferSize)                     \
    F(bLength)                             \
    F(sLength)                             \
    F(hLength)                             \
    F(originalHLength)                     \
    F(bshLength)                           \
    F(bsLength)                            \
    F(oneCalSize)                          \
    F(numberOfTmpBuf)                      \
    F(loopRound)                           \
    F(inputTailSize)                       \
    F(inputTailPos)                        \
    F(bsTailSize)                          \
    F(bshCurLength)                        \
    F(bsCurLength)                         \
    F(gammaTempTensorPos)                  \
    F(betaTempTensorPos)                   \
    F(inputDyTmpTensorPos)                 \
    F(resForGammaTmpTensorPos)             \
    F(reserved)

// The next two layouts are anycann's own. Buffer sizes count 4-byte words, as above; lengths count elements.
#define ANYCANN_LayerNormGradTiling(F) \
    F(stackBufferSize)                 \
    F(bLength)                         \
    F(sLength)                         \
    F(hLength)                         \
    F(originalHLength)                 \
    F(bshLength)                       \
    F(bsLength)                        \
    F(oneCalSize)                      \
    F(numberOfTmpBuf)                  \
    F(loopRound)                       \
    F(inputTailSize)                   \
    F(inputTailPos)

#define ANYCANN_LayerNormTiling(F) \
    F(bLength)                     \
    F(sLength)                     \
    F(hLength)                     \
    F(originalHLength)             \
    F(tmpBufSize)                  \
    F(bshLength)                   \
    F(bsLength)                    \
    F(oneTmpSize)                  \
    F(numberOfTmpBuf)              \
    F(loopRound)                   \
    F(inputTailSize)               \
    F(inputTailPos)

#endif
