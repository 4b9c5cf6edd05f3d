// One picture while it is drawn: its bytes so far, and how many have been sent.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "models/spec.h"
#include "server/calls/call_event.h"

namespace runnel {

// A row of a picture: width * channels bytes. It is valid as long as its drawing.
struct DrawnRow {
  int row = 0;
  std::span<const uint8_t> bytes;
};

class Drawing {
 public:
  // A picture of `shape` that begins with the bytes `given`.
  Drawing(const ImageShape& shape, std::span<const int32_t> given);

  // Adds a run of the sample. Its values are bytes, and its positions are those in the picture.
  void add(const ValueRun& run);

  // The first whole row that has not been taken.
  std::optional<DrawnRow> take_row();
  // A picture has `partials` parts of equal numbers of rows before it is whole. Returns the index
  // of the last complete part, from 0. None if it has been taken, or if the picture is whole.
  std::optional<int> take_partial(int partials);

  // The picture as a PNG file. Parts that have not been drawn are grey. Errors of encode_png().
  Result<std::vector<uint8_t>> png() const;

 private:
  int row_bytes() const { return shape_.width * shape_.channels; }
  int rows() const { return static_cast<int>(drawn_ / row_bytes()); }  // complete rows

  const ImageShape shape_;
  std::vector<uint8_t> bytes_;  // of the complete picture
  int64_t drawn_ = 0;           // bytes
  int rows_taken_ = 0;
  int partials_taken_ = 0;
};

}  // namespace runnel
