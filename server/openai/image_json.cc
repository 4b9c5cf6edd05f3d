#include "server/openai/image_json.h"

#include "base/base64.h"
#include "base/png.h"
#include "server/http/event_stream.h"
#include "server/openai/image_request.h"

namespace runnel {
namespace {

constexpr int64_t kEventBytes = 512;  // of an event without the bytes of a picture
constexpr const char* kRow = "image_generation.row";
constexpr const char* kPartial = "image_generation.partial_image";
constexpr const char* kCompleted = "image_generation.completed";

OrderedJson usage_json(const ImageUsage& usage) {
  return {{"input_tokens", usage.given},
          {"input_tokens_details", {{"image_tokens", usage.given}, {"text_tokens", 0}}},
          {"output_tokens", usage.drawn},
          {"total_tokens", usage.given + usage.drawn}};
}

}  // namespace

int64_t ImageFormat::picture_bytes() const {
  return kEventBytes + base64_length(png_bytes({shape_.height, shape_.width, shape_.channels}));
}

int64_t ImageFormat::stream_bytes(bool rows) const {
  const int64_t row = kEventBytes + base64_length(int64_t{shape_.width} * shape_.channels);
  return picture_bytes() + (rows ? shape_.height * row : 0);
}

std::string ImageFormat::picture(std::span<const uint8_t> png) const {
  return json_text({{"b64_json", base64(png)}});
}

std::string ImageFormat::whole(const std::string& pictures, const ImageUsage& usage) const {
  return R"({"created":)" + std::to_string(created_) + R"(,"background":"opaque","data":[)" +
         pictures + R"(],"output_format":"png","size":")" + size_text(shape_) + R"(","usage":)" +
         json_text(usage_json(usage)) + "}\n";
}

std::string ImageFormat::row(int index, const DrawnRow& row) const {
  const OrderedJson event = {
      {"type", kRow}, {"index", index}, {"row", row.row}, {"b64_bytes", base64(row.bytes)}};
  return event_of(json_text(event), kRow);
}

std::string ImageFormat::partial(int index, int partial, std::span<const uint8_t> png) const {
  OrderedJson event = file_event(kPartial, index, png);
  event["partial_image_index"] = partial;
  return event_of(json_text(event), kPartial);
}

std::string ImageFormat::completed(int index, std::span<const uint8_t> png,
                                   const ImageUsage& usage) const {
  OrderedJson event = file_event(kCompleted, index, png);
  event["usage"] = usage_json(usage);
  return event_of(json_text(event), kCompleted);
}

OrderedJson ImageFormat::file_event(const char* type, int index,
                                    std::span<const uint8_t> png) const {
  return {{"type", type},
          {"index", index},
          {"b64_json", base64(png)},
          {"created_at", created_},
          {"size", size_text(shape_)},
          {"quality", "auto"},
          {"background", "opaque"},
          {"output_format", "png"}};
}

}  // namespace runnel
