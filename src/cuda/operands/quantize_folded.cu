// cuda/operands/quantize_folded.cu: launches of the kernels that quantize and fold.
#include <type_traits>

#include "check/arguments.h"
#include "cuda/runtime/even_bytes.h"
#include "cuda/operands/fold.h"
#include "cuda/operands/folded_rows.h"
#include "cuda/operands/rows_in_warps.h"
#include "cuda/runtime/launch.h"
#include "mxkern/kernels/operands/quantize_folded.cuh"
#include "mxkern/kernels/operands/quantize_folded_rows.cuh"

namespace mxkern::cuda {
namespace {

// Where x's codes and scales go beside the folded rows.
void put_codes(const char* function, const Buffer& x, Scheme scheme, const BlockScaled& codes,
               kernels::QuantizeFoldedParameters& p, Stream stream) {
  check(codes.scheme == scheme && codes.shape == x.shape, function,
        ": codes is of another scheme or shape than what is folded; expected ", name_of(scheme),
        " of ", x.shape);
  check_device_pointer(function, "codes.codes", codes.codes, x.device);
  check_device_pointer(function, "codes.scales", codes.scales, x.device);
  const SchemeFacts facts = facts_of(scheme);
  p.codes = codes.codes;
  p.code_row_bytes = code_row_bytes(scheme, p.columns);
  p.scales = codes.scales;
  p.scale_index = codes.scale_index();
  // Packed rows are padded to whole blocks; those of 8-bit codes end where their columns do.
  p.vector_stores =
      rows_start_on(p.codes, p.code_row_bytes, facts.bits == 6 ? 4 : 2 * facts.bits) &&
      (facts.bits < 8 || p.columns % facts.block == 0);
  const auto sizes = BlockScaled::sizes(scheme, x.shape, codes.scale_layout);
  const bool is_padded = sizes.scales != p.batch * p.rows * p.scale_index.blocks;
  if (is_padded && sizes.scales > 0) {
    check_cuda(cudaMemsetAsync(codes.scales, 0, sizes.scales, handle_of(stream)), function,
               "clear scales");
  }
}

// Large matrices whose codes are wanted as well did not gain, and are left to the other kernel.
bool takes_rows(const kernels::QuantizeFoldedParameters& p) {
  constexpr std::int64_t most_rows = std::int64_t{1} << 30, most_with_codes = std::int64_t{1} << 25;
  const bool codes_fit = p.vector_stores && p.rows * p.columns <= most_with_codes;
  return p.batch == 1 && p.is_held && p.columns > 0 && p.rows > 0 && p.rows < most_rows &&
         (p.codes == nullptr || codes_fit);
}

// Returns whether it did: where it can be done, and pays. Devices that can start kernels early
// convert to E4M3 as well.
template <class T>
bool quantize_folded_rows(const char* function, const kernels::QuantizeFoldedParameters& whole,
                          Stream stream) {
  if (!takes_rows(whole) || !can_start_early(function)) return false;
  const RowsInWarps how = rows_in_warps(whole.rows, whole.columns, processor_count(function));
  if (how.octets == 0) return false;
  kernels::QuantizeFoldedRowsParameters p = {};
  p.x = whole.x;
  p.row_stride = whole.row_stride;
  p.rows = static_cast<int>(whole.rows);
  p.columns = static_cast<int>(whole.columns);
  p.warps = how.warps;
  p.follows = kernels::Follows::behind;
  p.rule = whole.rule;
  p.out = whole.out;
  p.codes = whole.codes;
  p.code_row_bytes = whole.code_row_bytes;
  p.scales = whole.scales;
  p.scale_index = whole.scale_index;
  launch_rows_in_warps(how, [&](auto octets, auto warps) {
    launch<Start::early>(function, kernels::quantize_folded_rows_kernel<T, octets(), warps()>,
                         how.grid(whole.rows), how.threads(), 0, stream, p);
  });
  return true;
}

}  // namespace

void quantize_folded(const char* function, const Buffer& x, Scheme scheme, ScaleRule rule,
                     void* memory, const BlockScaled* codes, Stream stream) {
  const DeviceScope scope(x.device, function);
  check_device_pointer(function, "x", x.data, x.device);
  kernels::QuantizeFoldedParameters p = {};
  p.batch = x.shape.batch;
  p.rows = x.shape.rows;
  p.columns = x.shape.columns;
  p.x = x.data;
  p.batch_stride = x.batch_stride;
  p.row_stride = x.row_stride;
  p.out = folded_rows(x.shape, memory);
  if (codes != nullptr) put_codes(function, x, scheme, *codes, p, stream);
  // At most eight octets a thread: long teams wait for one another, and short ones take so much
  // shared memory that few of them run at once.
  p.log2_team = 5;
  while (p.log2_team < 8 && (std::int64_t{64} << p.log2_team) < p.columns) ++p.log2_team;
  const int rows = kernels::team_threads >> p.log2_team;
  // Rows of up to about 50000 float32 and 100000 elements of 16 bits are held in shared memory;
  // longer ones, and ones at odd addresses, are read twice.
  constexpr std::int64_t most_held = 200 * 1024;
  const int block = facts_of(scheme).block;
  const std::int64_t row_bytes = p.columns * static_cast<std::int64_t>(size_of(x.dtype));
  p.is_held = starts_on_16(x) && p.columns % block == 0 && row_bytes <= most_held;
  p.row_bytes = p.is_held ? static_cast<int>(row_bytes) : 0;
  const int block_bytes = block * static_cast<int>(size_of(x.dtype));
  const int shared_bytes = p.is_held ? rows * kernels::held_row_bytes(p.row_bytes, block_bytes) : 0;
  const dim3 grid = grid_of(ceil_div(p.batch * p.rows, rows));
  visit(scheme, [&]<class S>(S) {
    if constexpr (scheme_can_fold<S>) {
      p.rule = E8M0Rule::of<typename S::Format>(rule);
      visit(x.dtype, [&]<class T>(TypeTag<T>) {
        if constexpr (std::is_same_v<S, MxFp8E4M3> && sizeof(T) == 2) {
          if (quantize_folded_rows<T>(function, p, stream)) return;
        }
        launch<Start::early>(
            function, kernels::quantize_folded_kernel<S, T>, grid, kernels::team_threads,
            spread_bytes(function, grid.x, kernels::quantize_folded_blocks, shared_bytes), stream,
            p);
      });
    } else {
      check(false, function, ": ", S::name,
            " cannot be folded: its elements do not fit into 8-bit floats; use precision exact");
    }
  });
}

}  // namespace mxkern::cuda
