// Host definitions of tiling structs: BEGIN_TILING_DATA_DEF and friends make a class with set_ and get_ functions whose bytes have the layout
// of the kernel's struct (natural alignment, in the order of the fields).
#ifndef ANYCANN_REGISTER_TILINGDATA_BASE_H
#define ANYCANN_REGISTER_TILINGDATA_BASE_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace optiling {

class TilingDef {
public:
    std::size_t GetDataSize() const { return Up(end_, align_); }
    std::size_t GetDataAlign() const { return align_; }

    // Writes GetDataSize() bytes; a capacity below that writes nothing.
    void SaveToBuffer(void* buffer, std::size_t capacity) const
    {
        if (buffer == nullptr || capacity < GetDataSize()) {
            return;
        }
        std::memset(buffer, 0, GetDataSize());
        auto* out = static_cast<std::uint8_t*>(buffer);
        for (const Piece& piece : pieces_) {
            const auto* member = reinterpret_cast<const std::uint8_t*>(this) + piece.member;
            if (piece.nested) {
                const auto* child = reinterpret_cast<const TilingDef*>(member);
                child->SaveToBuffer(out + piece.offset, child->GetDataSize());
            } else {
                std::memcpy(out + piece.offset, member, piece.size);
            }
        }
    }

protected:
    struct Registered {};
    Registered Register(const void* member, std::size_t size, std::size_t align) { return Add(member, size, align, false); }
    Registered RegisterStruct(const TilingDef& child) { return Add(&child, child.GetDataSize(), child.GetDataAlign(), true); }

private:
    struct Piece {
        std::ptrdiff_t member;
        std::size_t offset, size;
        bool nested;
    };
    static std::size_t Up(std::size_t value, std::size_t align) { return (value + align - 1) / align * align; }
    Registered Add(const void* member, std::size_t size, std::size_t align, bool nested)
    {
        const std::size_t offset = Up(end_, align);
        pieces_.push_back(Piece{static_cast<const std::uint8_t*>(member) - reinterpret_cast<const std::uint8_t*>(this), offset, size, nested});
        end_ = offset + size;
        align_ = align > align_ ? align : align_;
        return Registered();
    }
    std::vector<Piece> pieces_;
    std::size_t end_ = 0, align_ = 1;
};

}  // namespace optiling

#define BEGIN_TILING_DATA_DEF(name)                                                                 \
    class name : public optiling::TilingDef                                                         \
    {                                                                                               \
    public:

#define TILING_DATA_FIELD_DEF(type, name)                                                           \
public:                                                                                             \
    void set_##name(type value) { name##_ = value; }                                                \
    type get_##name() const { return name##_; }                                                     \
                                                                                                    \
protected:                                                                                          \
    type name##_ = 0;                                                                               \
    Registered name##_at_ = Register(&name##_, sizeof(type), alignof(type));

#define TILING_DATA_FIELD_DEF_ARR(type, count, name)                                                \
public:                                                                                             \
    void set_##name(const type* values) { std::memcpy(name##_, values, sizeof name##_); }           \
    const type* get_##name() const { return name##_; }                                              \
    type* get_##name() { return name##_; }                                                          \
                                                                                                    \
protected:                                                                                          \
    type name##_[count] = {};                                                                       \
    Registered name##_at_ = Register(name##_, sizeof name##_, alignof(type));

#define TILING_DATA_FIELD_DEF_STRUCT(type, name)                                                    \
public:                                                                                             \
    type name;                                                                                      \
                                                                                                    \
protected:                                                                                          \
    Registered name##_at_ = RegisterStruct(name);

#define END_TILING_DATA_DEF                                                                         \
    }

#define REGISTER_TILING_DATA_CLASS(op, name) static_assert(std::is_class<name>::value, "a tiling class is registered by name");

#endif
