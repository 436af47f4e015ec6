// check/arguments.cc: the argument checks that the operations share.
#include "check/arguments.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "mxkern/core/error.h"
#include "mxkern/numerics/visit.h"

namespace mxkern {
namespace {

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// From the first byte of `a` to that of `b`.
std::int64_t distance(const Region& a, const Region& b) {
  return static_cast<std::int64_t>(b.begin - a.begin);
}

Region moved(Region region, std::int64_t bytes) {
  region.begin += static_cast<std::uintptr_t>(bytes);
  return region;
}

// Numbers i for which `extent` bytes at i * stride meet the `other` bytes at `from`.
struct Steps {
  std::int64_t first, last;

  Steps(std::int64_t stride, std::int64_t extent, std::int64_t from, std::int64_t other)
      : first(floor_div(from - extent, stride) + 1), last(floor_div(from + other - 1, stride)) {}

  Steps within(std::int64_t low, std::int64_t high) const {
    Steps steps = *this;
    steps.first = std::max(first, low);
    steps.last = std::min(last, high);
    return steps;
  }
};

// Both without outer repetition.
bool rows_overlap(const Region& a, const Region& b) {
  if (b.inner.count < a.inner.count) return rows_overlap(b, a);
  if (b.inner.count == 1) return true;
  const std::int64_t stride = b.inner.stride;
  if (a.inner.count == 1 || a.inner.stride == stride) {
    // Row i of one meets row j of the other where i - j is one of these.
    const Steps steps = Steps(stride, a.length, distance(a, b), b.length)
                            .within(1 - b.inner.count, a.inner.count - 1);
    return steps.first <= steps.last;
  }
  Region row = a;
  row.inner = {};
  const Steps steps =
      Steps(a.inner.stride, a.length, distance(a, b), b.extent()).within(0, a.inner.count - 1);
  for (std::int64_t i = steps.first; i <= steps.last; ++i) {
    if (overlap(moved(row, i * a.inner.stride), b)) return true;
  }
  return false;
}

}  // namespace

Region::Region(const Buffer& x) : begin(reinterpret_cast<std::uintptr_t>(x.data)) {
  const Shape& shape = x.shape;
  if (shape.size() == 0) return;
  const auto size = static_cast<std::int64_t>(size_of(x.dtype));
  length = shape.columns * size;
  if (shape.rows > 1) inner = {shape.rows, x.row_stride * size};
  if (shape.batch > 1 && x.batch_stride > 0) outer = {shape.batch, x.batch_stride * size};
  if (inner.count > 1 && outer.count > 1 && outer.stride < inner.stride) std::swap(inner, outer);
  // What leaves no gap is one stretch, and equal steps are one repetition.
  for (Repeat* repeat : {&inner, &outer}) {
    if (repeat->stride > length || (repeat == &outer && inner.count > 1)) continue;
    length += (repeat->count - 1) * repeat->stride;
    *repeat = {};
  }
  if (inner.count == 1) {
    inner = std::exchange(outer, {});
  } else if (outer.count > 1 && outer.stride <= inner.count * inner.stride &&
             outer.stride % inner.stride == 0) {
    inner.count += (outer.count - 1) * (outer.stride / inner.stride);
    outer = {};
  } else if (outer.count > 1 && outer.stride < inner_extent()) {
    length = extent();
    inner = outer = {};
  }
}

bool overlap(const Region& a, const Region& b) {
  const std::int64_t between = distance(a, b);
  if (a.length == 0 || b.length == 0 || between >= a.extent() || -between >= b.extent()) {
    return false;
  }
  if (a.outer.count == 1 && b.outer.count == 1) return rows_overlap(a, b);
  if (a.outer.count == 1) return overlap(b, a);
  Region matrix = a;
  matrix.outer = {};
  const Steps steps =
      Steps(a.outer.stride, a.inner_extent(), between, b.extent()).within(0, a.outer.count - 1);
  for (std::int64_t i = steps.first; i <= steps.last; ++i) {
    if (overlap(moved(matrix, i * a.outer.stride), b)) return true;
  }
  return false;
}

OccupiedParts::OccupiedParts(const char* argument, const BlockScaled& q) {
  const auto sizes = BlockScaled::sizes(q.scheme, q.shape, q.scale_layout);
  part[0] = {argument, ".codes", q.codes, static_cast<std::size_t>(sizes.codes)};
  part[1] = {argument, ".scales", q.scales, static_cast<std::size_t>(sizes.scales)};
  part[2] = {argument, ".tensor_scale", q.tensor_scale,
             static_cast<std::size_t>(sizes.tensor_scale)};
}

void check_apart(const char* function, const Occupied& out, const Occupied& other) {
  check(!overlap(out.region, other.region), function, ": ", out.argument, out.part, " overlaps ",
        other.argument, other.part,
        "; expected memory of its own; write to another buffer and copy it");
}

void check_apart(const char* function, std::span<const Occupied> outs, const Occupied& input) {
  for (std::size_t i = 0; i < outs.size(); ++i) {
    check_apart(function, outs[i], input);
    for (std::size_t j = 0; j < i; ++j) check_apart(function, outs[i], outs[j]);
  }
}

void check_apart_or_same(const char* function, const Buffer& out, const Buffer& x) {
  const bool in_place =
      out.data == x.data && out.row_stride == x.row_stride && out.batch_stride == x.batch_stride;
  if (!in_place) check_apart(function, {"out", out}, {"x", x});
}

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
  check_memory(function, argument, buffer);
  check_strides(function, argument, buffer);
}

void check_memory(const char* function, const char* argument, const Buffer& buffer) {
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
  check_memory(function, argument, q);
}

void check_memory(const char* function, const char* argument, const BlockScaled& q) {
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
  check<Unsupported>(has_cuda || device.type == DeviceType::cpu, function,
                     ": the arguments are on ", device,
                     ", but mxkern was built without CUDA; move them to the CPU, "
                     "or build with MXKERN_CUDA=ON");
}

}  // namespace mxkern
