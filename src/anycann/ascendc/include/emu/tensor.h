// GlobalTensor and LocalTensor: typed views. Index and range mistakes are found when the view is used.
#ifndef ANYCANN_EMU_TENSOR_H
#define ANYCANN_EMU_TENSOR_H

#include "emu/names.h"

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

    class Element {
    public:
        Element(const LocalTensor& tensor, int64_t index, anycann::emu::Loc loc) : tensor_(tensor), index_(index), loc_(loc) {}
        operator T() const { return tensor_.GetValue(index_, loc_); }
        Element& operator=(T value)
        {
            tensor_.SetValue(index_, value, loc_);
            return *this;
        }
        Element& operator=(const Element& other) { return *this = static_cast<T>(other); }
        Element(const Element&) = default;

    private:
        const LocalTensor& tensor_;
        int64_t index_;
        anycann::emu::Loc loc_;
    };
    Element operator()(int64_t index, anycann::emu::Loc loc = anycann::emu::Loc::current()) const { return Element(*this, index, loc); }

    template <typename U>
    LocalTensor<U> ReinterpretCast() const { return LocalTensor<U>(view_, position_); }

    uint32_t GetSize() const { return view_.bytes > 0 ? static_cast<uint32_t>(view_.bytes / static_cast<int64_t>(sizeof(T))) : 0; }
    uint32_t GetLength() const { return GetSize() * static_cast<uint32_t>(sizeof(T)); }
    void SetSize(uint32_t size) { view_.bytes = static_cast<int64_t>(size) * static_cast<int64_t>(sizeof(T)); }
    TPosition GetPosition() const { return position_; }
    uint64_t GetPhyAddr() const { return static_cast<uint64_t>(view_.begin); }

    // For the emulated instructions.
    const anycann::emu::View& view() const { return view_; }
    T* Data() const { return reinterpret_cast<T*>(view_.ub + view_.begin); }

private:
    anycann::emu::View view_;
    TPosition position_ = TPosition::MAX;
};

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
