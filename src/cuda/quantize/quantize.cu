// cuda/quantize/quantize.cu: which kernels a quantization takes, and with which parameters.
#include "check/quantize.h"
#include "cuda/backend.h"
#include "cuda/runtime/device_scope.h"
#include "cuda/quantize/launch.h"
#include "cuda/quantize/scalars.h"
#include "cuda/runtime/row_grids.h"
#include "cuda/quantize/tensor_amax.h"
#include "mxkern/core/error.h"
#include "tuning/h200.h"

namespace mxkern::cuda {
namespace {

// How errors call the parts of an output.
struct PartNames {
  const char *codes, *scales, *tensor_scale;
};
constexpr PartNames of_out = {"out.codes", "out.scales", "out.tensor_scale"};
constexpr PartNames of_rows = {"rows.codes", "rows.scales", "rows.tensor_scale"};
constexpr PartNames of_columns = {"columns.codes", "columns.scales", "columns.tensor_scale"};

// A float on the stack is what a caller who comes from the CPU would give.
void check_pointers(const char* function, const PartNames& names, const BlockScaled& out,
                    const QuantizeOptions& options) {
  check_device_pointer(function, names.codes, out.codes, out.device);
  check_device_pointer(function, names.scales, out.scales, out.device);
  check_device_pointer(function, names.tensor_scale, out.tensor_scale, out.device);
  check_scalar_pointers(function, options, out.device);
}

// Finds the amaxes that the quantizer will read: of x, or of what transforms make of it.
// `rows`, `columns`: the options of directions that find one, or null.
void find_amaxes(const char* function, const Buffer& x, const QuantizeOptions* rows,
                 const QuantizeOptions* columns, Stream stream) {
  if (rows != nullptr && columns != nullptr && rows->hadamard.size == 0) {
    return both_amaxes(function, x, rows->found_amax, columns->found_amax, columns->hadamard,
                       stream);
  }
  if (rows != nullptr) {
    tensor_amax(function, x, rows->found_amax, rows->hadamard, false, stream);
  }
  if (columns != nullptr) {
    tensor_amax(function, x, columns->found_amax, columns->hadamard, true, stream);
  }
}

// What store_whole_codes asks lines of codes to begin on.
int octet_alignment(const SchemeFacts& facts) { return facts.bits == 4 ? 4 : 8; }

kernels::TileOutput tile_output(const BlockScaled* out, const QuantizeOptions& options) {
  if (out == nullptr) return {};
  const std::int64_t row_bytes = code_row_bytes(out->scheme, out->shape.columns);
  return {out->codes,
          row_bytes,
          out->scales,
          out->scale_index(),
          out->tensor_scale,
          octet_options(out->scheme, options),
          rows_start_on(out->codes, row_bytes, 16),
          rows_start_on(out->codes, row_bytes, octet_alignment(facts_of(out->scheme)))};
}

void quantize_tiles(const char* function, const Buffer& x, const BlockScaled* rows,
                    const QuantizeOptions& row_options, const BlockScaled* columns,
                    const QuantizeOptions& column_options, bool one_amax, bool backwards,
                    Stream stream) {
  const BlockScaled& any = rows != nullptr ? *rows : *columns;
  const QuantizeOptions& options = rows != nullptr ? row_options : column_options;
  kernels::QuantizeTileParameters p = {};
  p.x = x.data;
  p.batch = x.shape.batch;
  p.rows = x.shape.rows;
  p.columns = x.shape.columns;
  p.batch_stride = x.batch_stride;
  p.row_stride = x.row_stride;
  p.along_rows = tile_output(rows, row_options);
  p.along_columns = tile_output(columns, column_options);
  if (one_amax) {
    p.along_columns.options.amax = row_options.found_amax;
    p.along_columns.options.found = column_options.found_amax;
  }
  p.square = options.block_shape == BlockShape::square;
  p.vector_loads = starts_on_16(x);
  p.backwards = backwards;
  p.fetching_blocks = 3 * processor_count(function);
  const Hadamard& transform = column_options.hadamard;
  if (columns != nullptr && transform.size != 0) {
    for (int i = 0; i < 32; ++i) {
      const bool negated = transform.signs.bit(i % transform.size) != 0;
      p.column_signs[i] = !negated ? 0u : x.dtype == DType::float32 ? 0x80000000u : 0x80008000u;
      if (i < 16) p.column_factors[i] = negated ? -hadamard_norm(16) : hadamard_norm(16);
    }
  }
  visit(any.scheme, [&](auto scheme) {
    launch_quantize_tile<decltype(scheme)>(function, x.dtype, options.rounding, p, stream);
  });
}

void quantize_rows(const char* function, const Buffer& x, const BlockScaled& out,
                   const QuantizeOptions& options, bool backwards, Stream stream) {
  kernels::QuantizeRowsParameters p = {};
  std::int64_t batch = x.shape.batch, rows = x.shape.rows;
  p.scale_index = out.scale_index();
  if (out.scale_layout == ScaleLayout::row_major && is_one_matrix(x)) {
    // Batches of rows are just rows where nothing is padded between them.
    rows *= batch;
    batch = 1;
    p.scale_index.rows = rows;
  }
  const SchemeFacts facts = facts_of(out.scheme);
  const std::int64_t blocks = out.scale_layout == ScaleLayout::swizzled
                                  ? round_up(p.scale_index.blocks, ScaleIndex::tile_blocks)
                                  : p.scale_index.blocks;
  const int log2_depth = tuning::h200::quantize::log2_series[facts.bits != 8];
  p.grid = row_grid(batch, rows, blocks * facts.block / 8, log2_depth);
  p.x = x.data;
  p.columns = x.shape.columns;
  p.batch_stride = x.batch_stride;
  p.row_stride = x.row_stride;
  p.codes = out.codes;
  p.code_row_bytes = code_row_bytes(out.scheme, x.shape.columns);
  p.scales = out.scales;
  p.tensor_scale = out.tensor_scale;
  p.options = octet_options(out.scheme, options);
  p.vector_loads = starts_on_16(x);
  p.vector_stores = rows_start_on(p.codes, p.code_row_bytes, octet_alignment(facts));
  p.backwards = backwards;
  visit(out.scheme, [&](auto scheme) {
    launch_quantize_rows<decltype(scheme)>(function, x.dtype, options.rounding, p, stream);
  });
}

// Whether a kernel for each direction takes less time than one for both, though it reads x again:
// 4over6 waits for instructions, not for x, and has a kernel of its own along the rows.
bool are_faster_apart(const QuantizeOptions& row_options, const QuantizeOptions& column_options) {
  return row_options.four_over_six || column_options.four_over_six;
}

void copy_amax(const char* function, const float* from, float* to, Stream stream) {
  check_cuda(cudaMemcpyAsync(to, from, sizeof(float), cudaMemcpyDeviceToDevice, handle_of(stream)),
             function, "copy an amax");
}

}  // namespace

void quantize(const char* function, const Buffer& x, const BlockScaled* rows,
              const QuantizeOptions& row_options, const BlockScaled* columns,
              const QuantizeOptions& column_options, Stream stream) {
  const DeviceScope scope(x.device, stream, function);
  check_device_pointer(function, "x", x.data, x.device);
  const bool both = rows != nullptr && columns != nullptr;
  if (rows != nullptr) check_pointers(function, both ? of_rows : of_out, *rows, row_options);
  if (columns != nullptr) {
    check_pointers(function, both ? of_columns : of_out, *columns, column_options);
  }
  if (both && row_options.rounding != column_options.rounding) {
    // A kernel has one rounding.
    quantize(function, x, rows, row_options, nullptr, {}, stream);
    quantize(function, x, nullptr, {}, columns, column_options, stream);
    return;
  }
  const bool rows_find = rows != nullptr && finds_amax(rows->scheme, row_options);
  const bool columns_find = columns != nullptr && finds_amax(columns->scheme, column_options);
  const bool backwards = rows_find || columns_find;
  // One pass over x for both directions, unless one of them looks at what a transform makes of it.
  const bool one_amax = rows_find && columns_find && row_options.hadamard.size == 0 &&
                        column_options.hadamard.size == 0 && x.shape.size() > 0;
  if (rows_find) check_found_amax(function, row_options);
  if (columns_find) check_found_amax(function, column_options);
  if (columns != nullptr) {
    check_transform(function, x.dtype,
                    std::max(row_options.hadamard.size, column_options.hadamard.size));
  }
  find_amaxes(function, x, rows_find ? &row_options : nullptr,
              columns_find && !one_amax ? &column_options : nullptr, stream);
  if (x.shape.size() == 0) {
    // An empty tensor has no codes and no scales, but a tensor scale.
    const auto store = [&](const BlockScaled* out, const QuantizeOptions& options) {
      if (out == nullptr || !facts_of(out->scheme).has_tensor_scale) return;
      store_tensor_scale(function, out->tensor_scale, options, stream);
    };
    store(rows, row_options);
    store(columns, column_options);
    return;
  }
  const bool square = row_options.block_shape == BlockShape::square;
  if (rows != nullptr && !square && (!both || are_faster_apart(row_options, column_options))) {
    quantize_rows(function, x, *rows, row_options, backwards, stream);
    if (!both) return;
    // Only the kernel for both directions leaves an amax in two places.
    if (one_amax && column_options.found_amax != row_options.found_amax) {
      copy_amax(function, row_options.found_amax, column_options.found_amax, stream);
    }
    // The cache still has what was read last.
    quantize_tiles(function, x, nullptr, row_options, columns, column_options, one_amax, !backwards,
                   stream);
    return;
  }
  quantize_tiles(function, x, rows, row_options, columns, column_options, one_amax, backwards,
                 stream);
}

}  // namespace mxkern::cuda
