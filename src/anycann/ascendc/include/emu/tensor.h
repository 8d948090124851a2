// GlobalTensor and LocalTensor: typed views. Index and range mistakes are found when the view is used.
#ifndef ANYCANN_EMU_TENSOR_H
#define ANYCANN_EMU_TENSOR_H

#include "emu/names.h"

namespace AscendC {
template <typename T>
class LocalTensor;
}  // namespace AscendC

namespace anycann {
namespace emu {

// One element of a tensor, as tensor(index) gives it: read and written by the scalar pipe.
template <typename Tensor>
class Element {
public:
    using T = typename Tensor::PrimType;
    Element(const Tensor& tensor, int64_t index, const Loc& loc) : tensor_(tensor), index_(index), loc_(loc) {}
    operator T() const { return tensor_.GetValue(index_, loc_); }
    Element& operator=(T value)
    {
        tensor_.SetValue(index_, value, loc_);
        return *this;
    }
    Element& operator=(const Element& other) { return *this = static_cast<T>(other); }
    Element(const Element&) = default;

private:
    const Tensor& tensor_;
    int64_t index_;
    Loc loc_;
};

// The right operand of `dst = src0 + src1`, and where that stands.
template <typename T>
struct Right {
    const AscendC::LocalTensor<T>& tensor;
    Loc loc;
    Right(const AscendC::LocalTensor<T>& operand, const Loc& here = Loc::current()) : tensor(operand), loc(here) {}
};

// An instruction on whole tensors that has no destination yet; `into` is the instruction.
template <typename T, typename F>
struct Pending {
    const AscendC::LocalTensor<T>& src0;
    const AscendC::LocalTensor<T>& src1;
    Loc loc;
    F into;
};
template <typename T, typename F>
Pending<T, F> MakePending(const AscendC::LocalTensor<T>& src0, const Right<T>& src1, F into) { return {src0, src1.tensor, src1.loc, into}; }

}  // namespace emu
}  // namespace anycann

// dst = src0 + src1 and the like: as many elements as dst has, for comparisons as src0 has. A friend, so that the right operand may convert.
#define ANYCANN_WHOLE(SYMBOL, NAME)                                                                                                   \
    friend auto operator SYMBOL(const LocalTensor& left, const anycann::emu::Right<T>& right)                                       \
    {                                                                                                                                 \
        return anycann::emu::MakePending(left, right, [](const auto& dst, const auto& a, const auto& b, const anycann::emu::Loc& loc) { \
            NAME(dst, a, b, dst.GetSize(), loc);                                                                                      \
        });                                                                                                                           \
    }
#define ANYCANN_WHOLE_COMPARE(SYMBOL, MODE)                                                                                           \
    friend auto operator SYMBOL(const LocalTensor& left, const anycann::emu::Right<T>& right)                                       \
    {                                                                                                                                 \
        return anycann::emu::MakePending(left, right, [](const auto& dst, const auto& a, const auto& b, const anycann::emu::Loc& loc) { \
            Compare(dst, a, b, CMPMODE::MODE, a.GetSize(), loc);                                                                      \
        });                                                                                                                           \
    }

namespace AscendC {

template <typename T>
class LocalTensor {
    static_assert(!std::is_reference<T>::value && std::is_trivially_copyable<T>::value, "LocalTensor takes a plain element type");

public:
    using PrimType = T;
    LocalTensor() = default;
    explicit LocalTensor(const anycann::emu::View& view, TPosition position) : view_(view), position_(position) {}

    LocalTensor operator[](int64_t offset) const
    {
        LocalTensor part = *this;
        part.view_.begin += offset * static_cast<int64_t>(sizeof(T));
        part.view_.bytes -= offset * static_cast<int64_t>(sizeof(T));
        return part;
    }

    // Reads and writes of single elements run on the scalar pipe.
    T GetValue(int64_t index, anycann::emu::Loc loc = anycann::emu::Loc::current()) const
    {
        anycann::emu::Op op("GetValue", anycann::emu::Pipe::S, loc);
        op.ReadAt(view_, index * static_cast<int64_t>(sizeof(T)), sizeof(T));
        return Data()[index];
    }
    template <typename V>
    void SetValue(int64_t index, V value, anycann::emu::Loc loc = anycann::emu::Loc::current()) const
    {
        anycann::emu::Op op("SetValue", anycann::emu::Pipe::S, loc);
        op.WriteAt(view_, index * static_cast<int64_t>(sizeof(T)), sizeof(T));
        Data()[index] = static_cast<T>(value);
    }

    anycann::emu::Element<LocalTensor> operator()(int64_t index, anycann::emu::Loc loc = anycann::emu::Loc::current()) const { return {*this, index, loc}; }

    template <typename U>
    LocalTensor<U> ReinterpretCast() const { return LocalTensor<U>(view_, position_); }

    uint32_t GetSize() const { return view_.bytes > 0 ? static_cast<uint32_t>(view_.bytes / static_cast<int64_t>(sizeof(T))) : 0; }
    uint32_t GetLength() const { return GetSize() * static_cast<uint32_t>(sizeof(T)); }
    void SetSize(uint32_t size) { view_.bytes = static_cast<int64_t>(size) * static_cast<int64_t>(sizeof(T)); }
    TPosition GetPosition() const { return position_; }
    uint64_t GetPhyAddr() const { return static_cast<uint64_t>(view_.begin); }

    template <typename S, typename F>
    LocalTensor& operator=(const anycann::emu::Pending<S, F>& pending)
    {
        pending.into(*this, pending.src0, pending.src1, pending.loc);
        return *this;
    }
    ANYCANN_WHOLE(+, Add)
    ANYCANN_WHOLE(-, Sub)
    ANYCANN_WHOLE(*, Mul)
    ANYCANN_WHOLE(/, Div)
    ANYCANN_WHOLE(&, And)
    ANYCANN_WHOLE(|, Or)
    ANYCANN_WHOLE_COMPARE(<, LT)
    ANYCANN_WHOLE_COMPARE(>, GT)
    ANYCANN_WHOLE_COMPARE(==, EQ)
    ANYCANN_WHOLE_COMPARE(<=, LE)
    ANYCANN_WHOLE_COMPARE(>=, GE)
    ANYCANN_WHOLE_COMPARE(!=, NE)

    // For the emulated instructions.
    const anycann::emu::View& view() const { return view_; }
    T* Data() const { return reinterpret_cast<T*>(view_.ub + view_.begin); }

private:
    anycann::emu::View view_;
    TPosition position_ = TPosition::MAX;
};

#undef ANYCANN_WHOLE
#undef ANYCANN_WHOLE_COMPARE

template <typename T>
class GlobalTensor {
public:
    using PrimType = T;
    GlobalTensor() = default;

    void SetGlobalBuffer(__gm__ T* buffer, uint64_t count)
    {
        view_.base = reinterpret_cast<uint8_t*>(buffer);
        view_.begin = 0;
        view_.bytes = static_cast<int64_t>(count * sizeof(T));
    }
    void SetGlobalBuffer(__gm__ T* buffer)
    {
        SetGlobalBuffer(buffer, 0);
        view_.bytes = -1;
    }

    GlobalTensor operator[](int64_t offset) const
    {
        GlobalTensor part = *this;
        part.view_.begin += offset * static_cast<int64_t>(sizeof(T));
        return part;
    }

    T GetValue(int64_t index, anycann::emu::Loc loc = anycann::emu::Loc::current()) const
    {
        anycann::emu::Op op("GetValue", anycann::emu::Pipe::S, loc);
        op.ReadGm(view_, index * static_cast<int64_t>(sizeof(T)), sizeof(T), sizeof(T));
        return Data()[index];
    }
    template <typename V>
    void SetValue(int64_t index, V value, anycann::emu::Loc loc = anycann::emu::Loc::current()) const
    {
        anycann::emu::Op op("SetValue", anycann::emu::Pipe::S, loc);
        op.WriteGm(view_, index * static_cast<int64_t>(sizeof(T)), sizeof(T), sizeof(T));
        Data()[index] = static_cast<T>(value);
    }

    anycann::emu::Element<GlobalTensor> operator()(int64_t index, anycann::emu::Loc loc = anycann::emu::Loc::current()) const { return {*this, index, loc}; }

    uint64_t GetSize() const { return view_.bytes > view_.begin ? static_cast<uint64_t>(view_.bytes - view_.begin) / sizeof(T) : 0; }
    __gm__ T* GetPhyAddr() const { return Data(); }
    __gm__ T* GetPhyAddr(uint64_t offset) const { return Data() + offset; }
    void SetL2CacheHint(CacheMode) const {}

    // For the emulated instructions.
    const anycann::emu::GmView& view() const { return view_; }
    T* Data() const { return reinterpret_cast<T*>(view_.base + view_.begin); }

private:
    anycann::emu::GmView view_;
};

}  // namespace AscendC

#endif
