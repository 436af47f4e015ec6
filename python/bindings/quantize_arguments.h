// bindings/quantize_arguments.h: what calls that quantize read of their arguments, and the two ways
// to quantize what was read.
#pragma once

#include <optional>
#include <utility>

#include "calls.h"
#include "options/kept_options.h"
#include "options/offset_options.h"

namespace mxkern::bindings {

// Options of a call, as the library's and as Python's. An offset in an array is not placed yet.
struct Options {
  QuantizeOptions value;
  nanobind::object object;
  bool has_array = false;

  Options() = default;
  explicit Options(nanobind::object made)
      : value(nanobind::cast<const QuantizeOptions&>(made)),
        object(std::move(made)),
        has_array(nanobind::isinstance<OffsetOptions>(object)) {}

  nanobind::object as_python() const { return object.is_valid() ? object : nanobind::cast(value); }

  // Puts an offset that is an array where the library reads it. x is the first array of the call.
  void place(const Call& call, nanobind::handle x) {
    if (!has_array) return;
    *this = Options(call.fault("placed", object, call.reader().adapter, x));
    has_array = false;
  }
};

// Throws IsCustom for a scheme of the user's own, and for options that only those have.
inline int scheme_of(const Call& call, nanobind::handle name, const Given& given) {
  const int scheme = call.scheme(name);
  const bool is_odd =
      given.has_options &&
      (position_of_name(given[Keyword::rounding], call.package().rounding_names) < 0 ||
       position_of_name(given[Keyword::scale_rule], call.package().rule_names) < 0);
  if (given.has_custom || is_odd) throw IsCustom("");
  return scheme;
}

// with_transform: false leaves the Hadamard transform out.
inline Options options_of(const Call& call, const Signature& signature, int scheme,
                          const Given& given, bool with_transform = true) {
  if (!given.has_options) return {};
  KeptOptions& kept = call.kept_options();
  if (const nanobind::handle found = kept.find(scheme, given, with_transform)) {
    return Options(nanobind::borrow(found));
  }
  nanobind::dict keywords;
  for (int i = 0; i < option_count; ++i) {
    const bool is_of_transform =
        i == static_cast<int>(Keyword::hadamard) || i == static_cast<int>(Keyword::sign_mask);
    if (with_transform || !is_of_transform) {
      keywords[signature.names[static_cast<std::size_t>(i)]] = given.values[i];
    }
  }
  nanobind::object made = call.fault("options", scheme, keywords);
  kept.keep(scheme, given, with_transform, made);
  return Options(std::move(made));
}

inline bool is_symmetric(const QuantizeOptions& options) {
  const bool walks = options.four_over_six && options.block_shape == BlockShape::square;
  return options.rounding == Rounding::nearest && !walks;
}

inline void check_columns(const Call& call, const Array& x) {
  if (x.extents.dimensions < 2) call.fault("no_columns", x.extents.tuple());
}

// A transform works on whole groups along the block axis.
inline void check_groups(const Call& call, const Hadamard& hadamard, Extents extents) {
  const int size = hadamard.size;
  if (size != 0 && extents.last() % size != 0) call.fault("groups", extents.last(), size);
}

// Where a call that quantizes writes, and the scalars that it is given; None where it is not told.
struct QuantizeTarget {
  int scheme = 0, layout = 0;
  nanobind::handle out, amax, tensor_scale;
  const BlockScaled* rows = nullptr;  // where rows that Python never sees go

  // given: out, or the half of it that is for this direction.
  Quantized made(Call& call, Name argument, nanobind::handle given, const Extents& extents,
                 Device device) const {
    return out.is_none() ? call.made(scheme, layout, extents, device)
                         : call.given(argument, given, scheme, layout, extents, device);
  }
  Quantized made_rows(Call& call, Name argument, nanobind::handle given, const Extents& extents,
                      Device device) const {
    if (rows == nullptr) return made(call, argument, given, extents, device);
    Quantized placed;
    placed.view = *rows;
    placed.extents = extents;
    return placed;
  }
};

// Quantizes x, a plain array, along its rows or its columns.
inline Quantized quantize_one(Call& call, Array x, bool columns, QuantizeOptions options,
                              const QuantizeTarget& target) {
  if (columns) check_columns(call, x);
  call.take(x.span());
  // A direction of x is the other one of its transpose, except for random words and for the order
  // in which 4over6 walks a square.
  if (is_symmetric(options) && x.turn()) columns = !columns;
  const Plain plain = call.plain(x);
  const Extents extents = columns ? transposed(plain.array.extents) : plain.array.extents;
  check_groups(call, options.hadamard, extents);
  const Device device = plain.view.device;
  call.read_scalars(target.amax, target.tensor_scale, target.scheme, device, options);
  Quantized made = target.made_rows(call, "out", target.out, extents, device);
  call.make_found_amax(target.scheme, device, options);
  const Stream queue = call.stream(device);
  call.run(plain.view.shape.size(), [&] {
    columns ? mxkern::quantize_columns(plain.view, made.view, options, queue)
            : mxkern::quantize(plain.view, made.view, options, queue);
  });
  return made;
}

// (rows, columns) of a value for both directions, or of a pair of them.
inline std::pair<nanobind::object, nanobind::object> both_of(const Call& call, Name argument,
                                                             nanobind::handle value, bool is_pair) {
  if (!is_pair && !PyTuple_Check(value.ptr())) {
    return {nanobind::borrow(value), nanobind::borrow(value)};
  }
  const nanobind::object pair = call.fault("pair", argument, value);
  return {pair[0], pair[1]};
}

// Quantizes x, a plain array, along its rows and its columns, with options for each. `target` has a
// value for both, or pairs.
inline std::pair<Quantized, Quantized> quantize_two(Call& call, Array x, QuantizeOptions of_rows,
                                                    QuantizeOptions of_columns,
                                                    const QuantizeTarget& target) {
  check_columns(call, x);
  const Plain plain = call.plain(x);
  call.take(x.span());
  const Extents extents = x.extents, turned = transposed(x.extents);
  const Device device = plain.view.device;
  std::pair<nanobind::object, nanobind::object> outs{nanobind::none(), nanobind::none()};
  if (!target.out.is_none()) outs = both_of(call, "out", target.out, true);
  const auto amaxes = both_of(call, "amax", target.amax, false);
  const auto scales = both_of(call, "tensor_scale", target.tensor_scale, false);
  check_groups(call, of_rows.hadamard, extents);
  check_groups(call, of_columns.hadamard, turned);
  call.read_scalars(amaxes.first, scales.first, target.scheme, device, of_rows);
  call.read_scalars(amaxes.second, scales.second, target.scheme, device, of_columns);
  Quantized rows = target.made_rows(call, "out[0]", outs.first, extents, device);
  call.make_found_amax(target.scheme, device, of_rows);
  Quantized columns = target.made(call, "out[1]", outs.second, turned, device);
  call.make_found_amax(target.scheme, device, of_columns);
  const Stream queue = call.stream(device);
  call.run(plain.view.shape.size(), [&] {
    mxkern::quantize_both(plain.view, rows.view, columns.view, of_rows, of_columns, queue);
  });
  return {std::move(rows), std::move(columns)};
}

}  // namespace mxkern::bindings
