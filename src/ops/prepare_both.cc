// ops/prepare_both.cc: checks the arguments of prepare_both and picks the device.
#include "mxkern/prepare_both.h"

#include <algorithm>
#include <array>

#include "check/arguments.h"
#include "check/gemm.h"
#include "check/quantize.h"
#include "cpu/quantize/row_spreads.h"
#include "ops/memory_pieces.h"
#include "plan/prepare_both.h"
#include "cuda/operands/prepare_both.h"

namespace mxkern {
namespace {

constexpr const char* function = "prepare_both";

// One of the two results.
struct Side {
  const char* argument;
  const char* source_name;
  const char* spreads_name;
  const PreparedOperand& out;
  std::uint8_t* spreads;
  Shape shape;  // of x as the side sees it
};

void check_side(const Side& side, Device device) {
  const PreparedOperand& out = side.out;
  check_prepared(function, side.argument, out);
  check_same_shape(function, side.argument, out.source.shape, side.shape);
  check_same_device(function, side.argument, out.source.device, device);
  check(cuda::fold_facts(out.source.scheme).can_fold, function, ": ", side.argument, " has scheme ",
        name_of(out.source.scheme),
        ", which is not folded; expected an MX scheme of floating point; call quantize_both and "
        "prepare_operand");
  if (out.has_source()) check_writable(function, side.argument, out.source.is_read_only);
}

// What a call writes: at most five parts a side, and the working memory.
class Written {
 public:
  void add(const Occupied& part) { parts_[count_++] = part; }
  void add(const Side& side) {
    const BlockScaled& q = side.out.source;
    if (side.out.has_source()) {
      const OccupiedParts parts(side.source_name, q);
      add(parts.part[0]);
      add(parts.part[1]);
    }
    add({side.argument, ".data", side.out.data, prepared_bytes(side.out.form, q.scheme, q.shape)});
    const std::int64_t rows = q.shape.batch * q.shape.rows;
    if (side.spreads != nullptr) {
      add({side.spreads_name, "", side.spreads, static_cast<std::size_t>(rows)});
    }
  }
  std::span<const Occupied> all() const { return {parts_.data(), count_}; }

 private:
  std::array<Occupied, 9> parts_;
  std::size_t count_ = 0;
};

void check_options(const PreparedOperand& out, const QuantizeOptions& options, const Shape& shape) {
  check(options.rounding == Rounding::nearest && options.block_shape == BlockShape::row &&
            options.hadamard.size == 0,
        function,
        ": stochastic rounding, square blocks or a Hadamard transform; expected none; "
        "call quantize_both and prepare_operand");
  check_quantize_options(function, out.source.scheme, out.source.device, options, shape);
}

}  // namespace

void prepare_both(const Buffer& given, const PreparedOperand& rows, const PreparedOperand& columns,
                  const BothSpreads& spreads, const QuantizeOptions& options, Workspace workspace,
                  Stream stream) {
  check_buffer(function, "x", given);
  const Buffer x = with_strides(given);
  const Side sides[] = {{"rows", "rows.source", "spreads.rows", rows, spreads.rows, x.shape},
                        {"columns", "columns.source", "spreads.columns", columns, spreads.columns,
                         x.shape.transposed()}};
  for (const Side& side : sides) check_side(side, x.device);
  check(rows.source.scheme == columns.source.scheme, function, ": rows has scheme ",
        name_of(rows.source.scheme), " and columns ", name_of(columns.source.scheme),
        "; expected the same scheme");
  check_options(rows, options, x.shape);
  check_device(function, x.device);
  const PreparedForm form =
      usable_prepared_form(PreparedForm::folded, rows.source.scheme, x.device);
  for (const Side& side : sides) {
    check(side.out.form == form, function, ": ", side.argument, " has form ",
          name_of(side.out.form), "; expected ", name_of(form),
          ", which usable_prepared_form gives for folded on this device");
  }
  Written written;
  for (const Side& side : sides) written.add(side);
  const std::size_t bytes = prepare_both_workspace_bytes(rows, columns);
  check(workspace.bytes >= bytes, function, ": workspace has ", workspace.bytes,
        " bytes; expected at least ", bytes, "; ask ", function, "_workspace_bytes");
  check_memory(function, "workspace", "", workspace.data, bytes,
               x.device.type == DeviceType::cpu ? 64 : 256);
  if (bytes > 0) written.add({"workspace", "", workspace.data, bytes});
  check_apart(function, written.all(), {"x", x});
  if constexpr (has_cuda) {
    if (form == PreparedForm::folded) {
      BlockScaled codes = columns.source;
      MemoryPieces pieces(workspace.data);
      if (!columns.has_source()) {
        codes = take_quantized(pieces, codes.scheme, codes.shape, codes.device);
      }
      return cuda::prepare_both(x, rows, columns, codes, workspace.data, spreads, options, stream);
    }
  }
  quantize_both(x, rows.source, columns.source, options, options, stream);
  for (const Side& side : sides) {
    if (side.spreads == nullptr) continue;
    check<Unsupported>(x.device.type == DeviceType::cpu, function, ": ", side.spreads_name,
                       " is given, and products on this device do not fold; expected null");
    cpu::find_row_spreads(side.out.source, side.spreads);
  }
}

std::size_t prepare_both_workspace_bytes(const PreparedOperand& rows,
                                         const PreparedOperand& columns) {
  MemoryPieces pieces;
  const BlockScaled& q = columns.source;
  if (columns.form != PreparedForm::folded || columns.has_source()) return 0;
  take_quantized(pieces, q.scheme, q.shape, q.device);
  // x's dtype and address decide which of the two it is.
  const bool in_tiles = cuda::prepares_in_tiles(rows, columns);
  return std::max(pieces.bytes(), in_tiles ? cuda::both_tiles_bytes(rows.source.shape) : 0);
}

}  // namespace mxkern
