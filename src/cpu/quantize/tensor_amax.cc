// cpu/quantize/tensor_amax.cc: the largest finite magnitude of a tensor, in parallel.
#include "cpu/quantize/tensor_amax.h"

#include <algorithm>
#include <atomic>

#include "cpu/backend.h"
#include "cpu/runtime/scratch.h"

namespace mxkern::cpu {
namespace {

// Float32 magnitude bits.
std::uint32_t part_amax(const LineSource& source, const Tile& part) {
  const DType dtype = source.x.dtype;
  const KernelTable::FiniteAmax finite_amax = source.kernels.finite_amax[static_cast<int>(dtype)];
  const Lines lines = source.is_direct()           ? lines_in_place(source, part)
                      : source.transforms_across() ? scratch<Patch>().load_across(source, part)
                                                   : scratch<Patch>().load(source, part);
  std::uint32_t amax = 0;
  for (std::int64_t i = 0; i < lines.count; ++i) {
    const std::int64_t start = i * lines.stride * static_cast<std::int64_t>(size_of(dtype));
    amax = std::max(amax, finite_amax(lines.data + start, lines.elements));
  }
  return amax;
}

void raise(std::atomic<std::uint32_t>& amax, std::uint32_t value) {
  std::uint32_t seen = amax.load(std::memory_order_relaxed);
  while (seen < value && !amax.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

}  // namespace

void find_amaxes(std::span<const LineSource* const> sources, float* amaxes) {
  std::atomic<std::uint32_t> found[2] = {0, 0};
  const Shape shape = sources.front()->x.shape;
  const bool direct =
      std::all_of(sources.begin(), sources.end(), [](auto* source) { return source->is_direct(); });
  if (shape.size() != 0) {
    const TileShape tiles = direct ? line_tile(shape, 1, tile_elements) : panel_tile(shape);
    for_each_tile(shape, tiles, [&](const Tile& tile) {
      for (std::size_t i = 0; i < sources.size(); ++i) {
        const LineSource& source = *sources[i];
        const auto add = [&](const Tile& part) { raise(found[i], part_amax(source, part)); };
        if (source.is_direct()) {
          add(tile);
        } else if (source.transforms_across()) {
          for_each_part(tile, across_patch, add);
        } else {
          for_each_part(tile, patch_shape(source, tile, 1), add);
        }
      }
    });
  }
  for (std::size_t i = 0; i < sources.size(); ++i) amaxes[i] = float_of(found[i].load());
}

void tensor_amax(const Buffer& x, float* amax, const AmaxOptions& options,
                 const KernelTable& kernels) {
  const Hadamard& hadamard = options.hadamard;
  const bool plain = hadamard.size == 0;
  const LineSource source{plain ? as_one_line(x) : x,
                          !plain && options.columns,
                          {hadamard.size, hadamard.signs},
                          kernels};
  const LineSource* sources[] = {&source};
  find_amaxes(sources, amax);
}

}  // namespace mxkern::cpu
