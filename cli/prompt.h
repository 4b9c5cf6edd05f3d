// Reads one image from a file of images: "digit.png", "t10k-images-idx3-ubyte.gz#7".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/idx_file.h"
#include "models/spec.h"

namespace runnel {

// A file and the index of one of its items. The index follows the last '#', unless a file exists
// with the whole name. INVALID_ARGUMENT if the index is not a number.
struct ItemName {
  std::string path;
  int64_t index = 0;
  bool has_index = false;
};
Result<ItemName> parse_item_name(const std::string& name);

// OK if the file's items are images of `shape`. An idx file has items of {height, width} for one
// channel, or {height, width, channels} for any number. INVALID_ARGUMENT names the file, the
// expected shape and the actual one.
Status check_idx_shape(const IdxFile& idx, const ImageShape& shape, const std::string& file);

// The bytes of the image `name` in a PNG or idx file, which must have the model's shape.
Result<std::vector<uint8_t>> load_image(const std::string& name, const ImageShape& shape);

// The first `rows` rows of the image `name`, as the values of a prompt. INVALID_ARGUMENT unless 1
// <= rows < shape.height.
Result<std::vector<int32_t>> image_prompt(const std::string& name, const ImageShape& shape,
                                          int64_t rows);

}  // namespace runnel
