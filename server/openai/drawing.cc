#include "server/openai/drawing.h"

#include <algorithm>

#include "base/png.h"

namespace runnel {
namespace {

constexpr uint8_t kNotDrawn = 0x80;

}  // namespace

Drawing::Drawing(const ImageShape& shape, std::span<const int32_t> given)
    : shape_(shape),
      bytes_(static_cast<size_t>(shape.bytes()), kNotDrawn),
      drawn_(std::ssize(given)) {
  std::ranges::copy(given, bytes_.begin());
}

void Drawing::add(const ValueRun& run) {
  std::ranges::copy(run.values, bytes_.begin() + run.position);
  drawn_ = run.position + std::ssize(run.values);
}

std::optional<DrawnRow> Drawing::take_row() {
  if (rows_taken_ == rows()) return std::nullopt;
  const int row = rows_taken_++;
  const size_t width = static_cast<size_t>(row_bytes());
  return DrawnRow{row, std::span(bytes_).subspan(row * width, width)};
}

std::optional<int> Drawing::take_partial(int partials) {
  const int64_t parts = int64_t{rows()} * (partials + 1) / shape_.height;
  if (parts <= partials_taken_ || rows() == shape_.height) return std::nullopt;
  partials_taken_ = static_cast<int>(parts);
  return partials_taken_ - 1;
}

Result<std::vector<uint8_t>> Drawing::png() const {
  return encode_png(bytes_, {shape_.height, shape_.width, shape_.channels});
}

}  // namespace runnel
