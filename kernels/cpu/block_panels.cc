#include "kernels/cpu/block_panels.h"

#include <bit>
#include <cstring>

#include "kernels/blocks.h"
#include "kernels/cpu/block_layout.h"

namespace runnel::cpu {
namespace {

// The bits of a number that half precision has.
uint16_t half_bits(float number) {
  const auto bits = std::bit_cast<uint32_t>(number);
  const uint32_t sign = bits >> 16 & 0x8000U;
  const uint32_t exponent = bits >> 23 & 0xFFU;
  if (exponent < 113) {  // a multiple of 2^-24, below 2^-14
    const float size = std::bit_cast<float>(bits & 0x7fffffffU) * 0x1p24F;
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(size));
  }
  return static_cast<uint16_t>(sign | (exponent - 112) << 10 | (bits >> 13 & 0x3FFU));
}

// Writes runs of one output of a panel, whose units begin at `units`.
class Column {
 public:
  Column(const BlockLayout& layout, int panel, int lane, std::byte* units)
      : layout_(layout), panel_(panel), lane_(lane), units_(units) {}

  void put(int64_t index, const BlockRun& run) {
    std::byte* const unit = units_ + index / layout_.runs * layout_.unit_bytes(panel_);
    const int part = static_cast<int>(index % layout_.runs);
    std::byte* const words = unit + layout_.head_bytes(panel_) + part * layout_.run_bytes(panel_);
    put_words(run, words);
    if (layout_.runs == 1) {
      put_half(words + layout_.words_bytes(panel_), run.d);
    } else {
      put_head(run, part, unit);
    }
  }

 private:
  void put_half(std::byte* row, float number) const {
    const uint16_t bits = half_bits(number);
    std::memcpy(row + 2 * lane_, &bits, sizeof(bits));
  }

  void put_head(const BlockRun& run, int part, std::byte* unit) const {
    put_half(unit, run.d);
    if (layout_.minimum) put_half(unit + 2 * panel_, run.d_least);
    std::byte* const factors =
        unit + panel_ * ((layout_.minimum ? 4 : 2) + part * layout_.factors()) + lane_;
    factors[0] = static_cast<std::byte>(run.factors[0]);
    if (layout_.minimum) factors[panel_] = static_cast<std::byte>(run.least_factor);
    if (layout_.halves) factors[panel_] = static_cast<std::byte>(run.factors[1]);
  }

  void put_words(const BlockRun& run, std::byte* words) const {
    const int lanes = panel_ / 2;  // of a vector
    std::byte* const to =
        words + lane_ / lanes * (layout_.words_bytes(panel_) / 2) + lane_ % lanes * 4;
    for (int v = 0; v < layout_.vectors(); ++v) {
      for (int byte = 0; byte < 4; ++byte) {
        const auto at = [&](int i) { return run.q[i] + layout_.offset; };
        const int number =
            layout_.nibbles ? at(8 * v + byte) | at(8 * v + 4 + byte) << 4 : at(4 * v + byte);
        to[v * lanes * 4 + byte] = static_cast<std::byte>(number);
      }
    }
  }

  const BlockLayout layout_;
  const int panel_, lane_;
  std::byte* const units_;
};

}  // namespace

bool has_block_panels(StoredType type) {
  return is_blocks(type) && type != StoredType::kMxfp4;  // whose scales half precision has not
}

Buffer block_panels(const HostTensor& weight, int panel, Arena& arena) {
  const BlockLayout layout = block_layout(weight.stored);
  const int64_t runs = weight.cols / kRun;
  const int64_t bytes = runs / layout.runs * layout.unit_bytes(panel);
  Buffer panels = arena.place((weight.rows + panel - 1) / panel * bytes);
  const auto* const data = static_cast<const std::byte*>(weight.data);
  for (int row = 0; row < weight.rows; ++row) {
    Column column(layout, panel, row % panel, panels.data() + row / panel * bytes);
    for (int64_t run = 0; run < runs; ++run) {
      column.put(run, block_run(weight.stored, data, row * runs + run));
    }
  }
  return panels;
}

}  // namespace runnel::cpu
