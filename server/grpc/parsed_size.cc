#include "server/grpc/parsed_size.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <limits>

namespace runnel {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MessageFactory;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr int64_t kFirst = 128;  // room for the first elements of a message's arrays
constexpr int kDeepest = 100;    // as deep as the library parses
constexpr int64_t kGrowth = 2;   // a full array doubles
constexpr int64_t kString = 48;  // an empty one, with the allocator's overhead
constexpr int64_t kPointer = 8;
constexpr int64_t kUnknown = 16;  // one unknown field

// Bytes of one number in an array.
int64_t width(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT64:
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return 8;
    default:
      return 4;
  }
}

// Adds up the size of a message and of the messages in it.
class Sizer {
 public:
  Sizer(CodedInputStream& in, int64_t most) : in_(in), most_(most) {}

  // An empty message.
  void add_empty(const Message& prototype) {
    size_ += kFirst + static_cast<int64_t>(prototype.SpaceUsedLong());
  }

  // Counts the fields of a message. Returns false if the bytes are invalid; the fields before them
  // are counted.
  bool fields(const Message& prototype, int depth) {
    while (const uint32_t tag = in_.ReadTag()) {
      if (size_ > most_) return false;  // enough is known
      const int number = WireFormatLite::GetTagFieldNumber(tag);
      const FieldDescriptor* field = prototype.GetDescriptor()->FindFieldByNumber(number);
      if (!value(field, tag, depth)) return false;
    }
    return in_.ConsumedEntireMessage();
  }

  int64_t size() const { return size_; }

 private:
  bool value(const FieldDescriptor* field, uint32_t tag, int depth) {
    const auto type = WireFormatLite::GetTagWireType(tag);
    if (field != nullptr && !fits(*field, type)) field = nullptr;  // kept as an unknown field
    if (field == nullptr) size_ += kGrowth * kUnknown;
    if (type != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (field != nullptr && field->is_repeated()) size_ += kGrowth * width(*field);
      const int begin = in_.CurrentPosition();
      const bool whole = WireFormatLite::SkipField(&in_, tag);
      // A group is kept as unknown fields of at least two bytes each.
      const bool group = type == WireFormatLite::WIRETYPE_START_GROUP;
      if (group) size_ += kString + (in_.CurrentPosition() - begin + 2) * kGrowth * kUnknown;
      return whole;
    }
    const Message* const message = message_of(field);
    if (message != nullptr) {  // the library creates it before it reads the length
      size_ += kGrowth * kPointer;
      add_empty(*message);
    }
    uint32_t length = 0;
    if (!in_.ReadVarint32(&length) ||
        length > static_cast<uint32_t>(std::numeric_limits<int>::max())) {
      return false;
    }
    if (message != nullptr) return sub_message(*message, static_cast<int>(length), depth);
    return delimited(field, static_cast<int>(length));
  }

  bool delimited(const FieldDescriptor* field, int length) {
    const bool is_number = field != nullptr && field->is_packable();
    // A packed number takes at least one byte, whatever its type.
    size_ += is_number ? kGrowth * width(*field) * length : kString + kGrowth * kPointer + length;
    return in_.Skip(length);
  }

  bool sub_message(const Message& prototype, int length, int depth) {
    if (depth >= kDeepest) return false;
    const auto limit = in_.PushLimit(length);
    const bool whole = fields(prototype, depth + 1);
    in_.PopLimit(limit);
    return whole;
  }

  // The empty message of a field that holds messages, else null.
  static const Message* message_of(const FieldDescriptor* field) {
    if (field == nullptr || field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return nullptr;
    return MessageFactory::generated_factory()->GetPrototype(field->message_type());
  }

  // Whether a value of this wire type fits the field.
  static bool fits(const FieldDescriptor& field, WireFormatLite::WireType type) {
    const auto own =
        WireFormatLite::WireTypeForFieldType(static_cast<WireFormatLite::FieldType>(field.type()));
    return type == own ||
           (field.is_packable() && type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  }

  CodedInputStream& in_;
  const int64_t most_;
  int64_t size_ = 0;
};

}  // namespace

int64_t parsed_size(const grpc::ByteBuffer& bytes, const Message& prototype, int64_t most) {
  grpc::ByteBuffer copy = bytes;  // shares the bytes: reading consumes the copy
  grpc::ProtoBufferReader reader(&copy);
  CodedInputStream in(&reader);
  Sizer sizer(in, most);
  sizer.add_empty(prototype);
  sizer.fields(prototype, 0);
  return sizer.size();
}

}  // namespace runnel
