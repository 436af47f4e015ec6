// bindings/readers/dlpack_table.h: the table of C functions through which a framework shows its
// tensors (DLPack 1.3), as far as it is used here: what a tensor is, and the current stream, in the
// time of one attribute of Python.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

namespace mxkern::bindings {

struct DlpackElement {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;

  friend bool operator==(const DlpackElement&, const DlpackElement&) = default;
};

// The memory of a tensor that somebody else owns. strides may be null where it is dense.
struct DlpackTensor {
  void* data;
  std::int32_t device_type;
  std::int32_t device;
  std::int32_t dimensions;
  DlpackElement element;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};

inline constexpr std::int32_t dlpack_cpu = 1, dlpack_cuda = 2;

struct DlpackTable {
  static constexpr std::uint32_t major = 1;

  struct Header {
    std::uint32_t major, minor;
    Header* previous;
  };

  Header header;
  void* allocate;
  void* take;
  void* give;
  int (*look)(void* object, DlpackTensor* tensor);  // -1: an error of Python is set
  int (*current_stream)(std::int32_t device_type, std::int32_t device, void** stream);

  // Of a type of tensors; null where it has none of this version.
  static const DlpackTable* of(nanobind::handle type) {
    const nanobind::object capsule =
        nanobind::steal(PyObject_GetAttrString(type.ptr(), "__dlpack_c_exchange_api__"));
    if (!capsule.is_valid() || !PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api")) {
      PyErr_Clear();
      return nullptr;
    }
    auto* header = static_cast<Header*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
    while (header != nullptr && header->major != major) header = header->previous;
    // The table begins with its header.
    const auto* table = reinterpret_cast<const DlpackTable*>(header);
    const bool usable =
        table != nullptr && table->look != nullptr && table->current_stream != nullptr;
    return usable ? table : nullptr;
  }
};

}  // namespace mxkern::bindings
