// The answers of /v1/images/generations, as text.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/json.h"
#include "models/spec.h"
#include "server/openai/drawing.h"

namespace runnel {

// Bytes of pictures.
struct ImageUsage {
  int64_t given = 0;
  int64_t drawn = 0;
};

class ImageFormat {
 public:
  // Of pictures of `shape` that are asked for at `created`, in seconds since 1970.
  ImageFormat(const ImageShape& shape, int64_t created) : shape_(shape), created_(created) {}

  // Bytes of a picture in an answer, at most: of a member of "data", or of all its rows with one
  // more event that has it as a file.
  int64_t picture_bytes() const;
  int64_t stream_bytes(bool rows) const;

  // A member of "data", and the whole answer of several joined by commas.
  std::string picture(std::span<const uint8_t> png) const;
  std::string whole(const std::string& pictures, const ImageUsage& usage) const;

  // Events of a stream. `index`: the picture's, from 0.
  std::string row(int index, const DrawnRow& row) const;
  std::string partial(int index, int partial, std::span<const uint8_t> png) const;
  std::string completed(int index, std::span<const uint8_t> png, const ImageUsage& usage) const;

 private:
  OrderedJson file_event(const char* type, int index, std::span<const uint8_t> png) const;

  const ImageShape shape_;
  const int64_t created_;
};

}  // namespace runnel
