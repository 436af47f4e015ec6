// check.cc: the argument checks that the operations share.
#include "check.h"

#include <cstdint>
#include <limits>

#include "mxkern/numerics/visit.h"

namespace mxkern {

std::ostream& operator<<(std::ostream& stream, const Shape& shape) {
  return stream << "[" << shape.batch << ", " << shape.rows << ", " << shape.columns << "]";
}

std::ostream& operator<<(std::ostream& stream, Device device) {
  stream << name_of(device.type);
  if (device.type != DeviceType::cpu || device.index != 0) stream << ":" << device.index;
  return stream;
}

void check_shape(const char* function, const char* argument, const Shape& shape) {
  check(shape.batch >= 0 && shape.rows >= 0 && shape.columns >= 0, function, ": ", argument,
        " has shape ", shape, "; expected no negative extent");
  check(shape.is_countable(), function, ": ", argument, " has shape ", shape,
        "; expected fewer than 2^60 elements, with rows and columns padded to 128 and 0 counted as "
        "1");
}

void check_kind(const char* function, const char* argument, const Buffer& buffer) {
  check_shape(function, argument, buffer.shape);
  check<InvalidType>(is_listed(buffer.dtype, all_dtypes), function, ": ", argument,
                     " has dtype number ", static_cast<int>(buffer.dtype),
                     "; expected float32, float16 or bfloat16");
}

void check_kind(const char* function, const char* argument, const BlockScaled& q) {
  check_shape(function, argument, q.shape);
  check(is_listed(q.scheme, all_schemes), function, ": ", argument, " has scheme number ",
        static_cast<int>(q.scheme), "; expected one of the schemes");
  check(is_listed(q.scale_layout, all_scale_layouts), function, ": ", argument,
        " has scale layout number ", static_cast<int>(q.scale_layout),
        "; expected row_major or swizzled");
}

void check_strides(const char* function, const char* argument, const Buffer& buffer) {
  if (buffer.shape.size() == 0) return;
  check(buffer.shape.rows == 1 || buffer.row_stride >= buffer.shape.columns, function, ": ",
        argument, " has a row stride of ", buffer.row_stride, " elements; expected at least its ",
        buffer.shape.columns, " columns");
  check(buffer.shape.batch == 1 || buffer.batch_stride >= 0, function, ": ", argument,
        " has a batch stride of ", buffer.batch_stride, " elements; expected none below zero");
  constexpr std::int64_t reach = std::numeric_limits<std::int64_t>::max() / 16;
  std::int64_t rows = 0, batches = 0;
  check(!__builtin_mul_overflow(buffer.shape.rows - 1, buffer.row_stride, &rows) &&
            !__builtin_mul_overflow(buffer.shape.batch - 1, buffer.batch_stride, &batches) &&
            rows <= reach && batches <= reach,
        function, ": ", argument, " has strides of ", buffer.row_stride, " and ",
        buffer.batch_stride, " elements; expected less than 2^59 from its first row to its last");
}

void check_buffer(const char* function, const char* argument, const Buffer& buffer) {
  check_kind(function, argument, buffer);
  check_buffer_memory(function, argument, buffer);
  check_strides(function, argument, buffer);
}

void check_buffer_memory(const char* function, const char* argument, const Buffer& buffer) {
  if (buffer.shape.size() == 0) return;
  check(buffer.data != nullptr, function, ": ", argument, " has shape ", buffer.shape,
        " but a null pointer; expected memory that holds it");
  check_aligned(function, argument, "", buffer.data, size_of(buffer.dtype));
}

namespace {

template <class View>
View with_known_strides(const View& view) {
  View known = view;
  const Shape& shape = view.shape;
  if (shape.size() == 0) {  // nobody has looked at its strides
    known.row_stride = shape.columns;
    known.batch_stride = shape.rows * shape.columns;
    return known;
  }
  if (shape.rows <= 1) {
    const bool has_next = shape.batch > 1 && view.batch_stride >= shape.columns;
    known.row_stride = has_next ? view.batch_stride : shape.columns;
  }
  if (shape.batch <= 1) known.batch_stride = shape.rows * known.row_stride;
  return known;
}

}  // namespace

Buffer with_strides(const Buffer& buffer) { return with_known_strides(buffer); }
PlannedTensor with_strides(const PlannedTensor& tensor) { return with_known_strides(tensor); }

void check_writable(const char* function, const char* argument, bool is_read_only) {
  check(!is_read_only, function, ": ", argument,
        " is a view of memory that is only read; expected one of memory to write to");
}

void check_output(const char* function, const char* argument, const Buffer& buffer) {
  check_writable(function, argument, buffer.is_read_only);
  const Shape& shape = buffer.shape;
  if (shape.size() == 0 || shape.batch == 1) return;
  const auto one_after_another = [](std::int64_t outer, std::int64_t count, std::int64_t inner,
                                    std::int64_t extent) {
    return outer >= (count - 1) * inner + extent;
  };
  const bool is_apart =
      one_after_another(buffer.batch_stride, shape.rows, buffer.row_stride, shape.columns) ||
      (buffer.batch_stride >= shape.columns && shape.rows > 1 &&
       one_after_another(buffer.row_stride, shape.batch, buffer.batch_stride, shape.columns));
  check(is_apart, function, ": ", argument, " has strides of ", buffer.row_stride, " and ",
        buffer.batch_stride, " elements for the shape ", shape,
        "; expected rows and matrices that do not overlap");
}

void check_aligned(const char* function, const char* argument, const char* part, const void* value,
                   std::size_t size) {
  check(starts_on(value, size), function, ": ", argument, part,
        " is misaligned; expected an address that is a multiple of ", size, " bytes");
}

void check_block_scaled(const char* function, const char* argument, const BlockScaled& q) {
  check_kind(function, argument, q);
  check_parts(function, argument, q);
}

void check_parts(const char* function, const char* argument, const BlockScaled& q) {
  const BlockScaled::Sizes sizes = BlockScaled::sizes(q.scheme, q.shape, q.scale_layout);
  check(q.codes != nullptr || sizes.codes == 0, function, ": ", argument,
        ".codes is null; expected memory for ", sizes.codes, " bytes");
  check(q.scales != nullptr || sizes.scales == 0, function, ": ", argument,
        ".scales is null; expected memory for ", sizes.scales, " bytes");
  check(q.tensor_scale != nullptr || sizes.tensor_scale == 0, function, ": ", argument,
        ".tensor_scale is null; expected a float32, which ", name_of(q.scheme), " has");
  check(q.tensor_scale == nullptr || facts_of(q.scheme).has_tensor_scale, function, ": ", argument,
        ".tensor_scale is given, and ", name_of(q.scheme), " has none; expected null");
  check_aligned(function, argument, ".tensor_scale", q.tensor_scale);
}

void check_same_shape(const char* function, const char* argument, const Shape& shape,
                      const Shape& wanted) {
  check(shape == wanted, function, ": ", argument, " has shape ", shape, "; expected ", wanted);
}

void check_same_device(const char* function, const char* argument, Device device, Device wanted) {
  check_device_type(function, device);
  check_device_type(function, wanted);
  check(device == wanted, function, ": ", argument, " is on ", device, "; expected ", wanted,
        ", where the other arguments are");
}

void check_output_like(const char* function, const Buffer& out, const Buffer& x) {
  check_output(function, "out", out);
  check_same_shape(function, "out", out.shape, x.shape);
  check_same_device(function, "out", out.device, x.device);
  check<InvalidType>(out.dtype == x.dtype, function, ": out has dtype ", name_of(out.dtype),
                     "; expected that of x, ", name_of(x.dtype));
}

void check_device_type(const char* function, Device device) {
  check(is_listed(device.type, all_device_types), function, ": device type number ",
        static_cast<int>(device.type), "; expected cpu or cuda");
}

void check_device(const char* function, Device device) {
  check_device_type(function, device);
#if !defined(MXKERN_HAS_CUDA)
  check<Unsupported>(device.type == DeviceType::cpu, function, ": the arguments are on ", device,
                     ", but mxkern was built without CUDA; move them to the CPU, "
                     "or build with MXKERN_CUDA=ON");
#endif
}

}  // namespace mxkern
