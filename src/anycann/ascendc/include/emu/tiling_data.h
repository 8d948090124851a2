// How a kernel reads its tiling, and the other macros of the vendor's build.
#ifndef ANYCANN_EMU_TILING_DATA_H
#define ANYCANN_EMU_TILING_DATA_H

#include "emu/copy.h"
#include "kernel_tiling/kernel_tiling.h"

namespace anycann {
namespace emu {

struct NoTiling {};

template <typename T>
T ReadTiling(const void* address, const Loc& loc = Loc::current())
{
    static_assert(!std::is_same<T, NoTiling>::value,
                  "anycann does not know this kernel's tiling struct: describe it with ascendc.build(..., tiling={...}) or tiling=\"host_tiling.h\", "
                  "or name it in the kernel with REGISTER_TILING_DEFAULT or GET_TILING_DATA_WITH_STRUCT");
    GmView view;
    view.base = const_cast<uint8_t*>(static_cast<const uint8_t*>(address));
    view.bytes = sizeof(T);
    T data;
    {
        Op op("GET_TILING_DATA", Pipe::S, loc);
        op.ReadGm(view, 0, sizeof(T), alignof(T));
        std::memcpy(static_cast<void*>(&data), address, sizeof(T));
    }
    return data;
}

}  // namespace emu
}  // namespace anycann

// ascendc.build defines ANYCANN_TILING_TYPE as the struct that it generated; REGISTER_TILING_DEFAULT in a kernel takes its place there.
#ifndef ANYCANN_TILING_TYPE
#define ANYCANN_TILING_TYPE anycann::emu::NoTiling
#endif
using AnycannTilingType = ANYCANN_TILING_TYPE;

#define GET_TILING_DATA(name, address) AnycannTilingType name = anycann::emu::ReadTiling<AnycannTilingType>(address)
#define GET_TILING_DATA_WITH_STRUCT(type, name, address) type name = anycann::emu::ReadTiling<type>(address)
#define GET_TILING_DATA_MEMBER(type, member, name, address) decltype(type::member) name = anycann::emu::ReadTiling<type>(address).member
#define REGISTER_TILING_DEFAULT(type) using AnycannTilingType [[maybe_unused]] = type

#define TILING_KEY_IS(key) (anycann::emu::TilingKey() == static_cast<std::uint64_t>(key))

// What the vendor's build reads from these is decided at launch here.
enum KernelMetaType { KERNEL_TYPE_AIV_ONLY, KERNEL_TYPE_AIC_ONLY, KERNEL_TYPE_MIX_AIV_1_0, KERNEL_TYPE_MIX_AIC_1_0, KERNEL_TYPE_MIX_AIC_1_1, KERNEL_TYPE_MIX_AIC_1_2 };
#define ANYCANN_VECTOR_TASK(type)                                                        \
    static_assert((type) == KERNEL_TYPE_AIV_ONLY || (type) == KERNEL_TYPE_MIX_AIV_1_0,   \
                  "anycann emulates the vector core: kernel type " #type " is not supported")
#define KERNEL_TASK_TYPE_DEFAULT(type) ANYCANN_VECTOR_TASK(type)
#define KERNEL_TASK_TYPE(key, type) ANYCANN_VECTOR_TASK(type)

// Template kernels are instantiated by ascendc.build(..., templates=...): the declarations of their parameters say nothing new.
#define ASCENDC_TPL_ARGS_DECL(...) static_assert(true, "")
#define ASCENDC_TPL_SEL(...) static_assert(true, "")
#define ASCENDC_TPL_ARGS_SEL(...)
enum AnycannTemplateType {
    C_DT_FLOAT = 0, C_DT_FLOAT16 = 1, C_DT_INT8 = 2, C_DT_INT32 = 3, C_DT_UINT8 = 4, C_DT_INT16 = 6, C_DT_UINT16 = 7, C_DT_UINT32 = 8,
    C_DT_INT64 = 9, C_DT_UINT64 = 10, C_DT_BOOL = 12, C_DT_BF16 = 27,
};

#endif
