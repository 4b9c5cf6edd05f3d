// The answers of /v1/images/generations, as text.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/json.h"
#include "models/spec.h"
#include "server/openai/drawing.h"

namespace runnel {

// The usage of a request, in bytes of pictures.
struct ImageUsage {
  int64_t given = 0;
  int64_t drawn = 0;
};

class ImageFormat {
 public:
  // For pictures of `shape` that were requested at `created`, in seconds since 1970.
  ImageFormat(const ImageShape& shape, int64_t created) : shape_(shape), created_(created) {}

  // Upper bounds on the bytes of one picture in an answer: as a member of "data"; and in a stream,
  // as one event with the file and, with `rows`, an event for each row.
  int64_t picture_bytes() const;
  int64_t stream_bytes(bool rows) const;

  // A member of "data". The whole answer, for `pictures`: such members, joined by commas.
  std::string picture(std::span<const uint8_t> png) const;
  std::string whole(const std::string& pictures, const ImageUsage& usage) const;

  // The events of a stream. `index`: of the picture, from 0.
  std::string row(int index, const DrawnRow& row) const;
  std::string partial(int index, int partial, std::span<const uint8_t> png) const;
  std::string completed(int index, std::span<const uint8_t> png, const ImageUsage& usage) const;

 private:
  OrderedJson file_event(const char* type, int index, std::span<const uint8_t> png) const;

  const ImageShape shape_;
  const int64_t created_;
};

}  // namespace runnel
