#include "server/grpc/reflection_service.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "base/within_memory.h"
#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "server/grpc/wire.h"
#include "server/host/live_calls.h"
#include "server/host/memory_budget.h"

namespace runnel {
namespace {

namespace wire = grpc::reflection::v1alpha;
using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;

// A request has one or two names, of at most a few hundred bytes.
constexpr int64_t kMostRequestBytes = 1 << 10;
// Anybody may ask, even without a key. So the answers take at most 1 / kShare of the memory of all
// calls, and the rest remains for callers with a key.
constexpr int64_t kShare = 8;

// Adds the file after all files that it imports.
void add_file(const FileDescriptor& file, std::set<std::string>& seen,
              wire::FileDescriptorResponse& out) {
  if (!seen.insert(file.name()).second) return;
  for (int i = 0; i < file.dependency_count(); ++i) add_file(*file.dependency(i), seen, out);
  google::protobuf::FileDescriptorProto proto;
  file.CopyTo(&proto);
  proto.SerializeToString(out.add_file_descriptor_proto());
}

void answer_with_file(const FileDescriptor* file, wire::ServerReflectionResponse& response) {
  if (file == nullptr) return;
  std::set<std::string> seen;
  add_file(*file, seen, *response.mutable_file_descriptor_response());
}

const FileDescriptor* file_of_extension(const wire::ExtensionRequest& request) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  const auto* const type = pool.FindMessageTypeByName(request.containing_type());
  if (type == nullptr) return nullptr;
  const auto* const field = pool.FindExtensionByNumber(type, request.extension_number());
  return field == nullptr ? nullptr : field->file();
}

void answer_with_extensions(const std::string& name, wire::ServerReflectionResponse& response) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  const auto* const type = pool.FindMessageTypeByName(name);
  if (type == nullptr) return;
  std::vector<const google::protobuf::FieldDescriptor*> extensions;
  pool.FindAllExtensions(type, &extensions);
  auto& out = *response.mutable_all_extension_numbers_response();
  out.set_base_type_name(name);
  for (const auto* const field : extensions) out.add_extension_number(field->number());
}

// Leaves the response without an answer if nothing is found.
void look_up(const wire::ServerReflectionRequest& request, const std::vector<std::string>& services,
             wire::ServerReflectionResponse& response) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  switch (request.message_request_case()) {
    case wire::ServerReflectionRequest::kFileByFilename:
      return answer_with_file(pool.FindFileByName(request.file_by_filename()), response);
    case wire::ServerReflectionRequest::kFileContainingSymbol:
      return answer_with_file(pool.FindFileContainingSymbol(request.file_containing_symbol()),
                              response);
    case wire::ServerReflectionRequest::kFileContainingExtension:
      return answer_with_file(file_of_extension(request.file_containing_extension()), response);
    case wire::ServerReflectionRequest::kAllExtensionNumbersOfType:
      return answer_with_extensions(request.all_extension_numbers_of_type(), response);
    case wire::ServerReflectionRequest::kListServices:
      for (const std::string& name : services) {
        response.mutable_list_services_response()->add_service()->set_name(name);
      }
      return;
    case wire::ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      return;
  }
}

// The answer has an error if the server has nothing of the name.
wire::ServerReflectionResponse answer_to(const wire::ServerReflectionRequest& request,
                                         const std::vector<std::string>& services) {
  wire::ServerReflectionResponse response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  look_up(request, services, response);
  if (response.message_response_case() ==
      wire::ServerReflectionResponse::MESSAGE_RESPONSE_NOT_SET) {
    response.mutable_error_response()->set_error_code(grpc::StatusCode::NOT_FOUND);
    response.mutable_error_response()->set_error_message("the server has nothing of this name");
  }
  return response;
}

using ByteStream = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

// Everything that the streams share.
struct Shared {
  ServerContext& state;
  const std::vector<std::string> services;
  MemoryBudget answers;  // of all answers that are being made or sent
};

// One stream. It reads the next request after it has sent the answer to the previous one, and holds
// no memory in between. It is a live call while it sends, so that a client that does not read is
// cut off. An idle stream is not, so it does not delay a drain.
class Stream final : public ByteStream,
                     public LiveCall,
                     public std::enable_shared_from_this<Stream> {
 public:
  Stream(Shared& shared, grpc::CallbackServerContext& context)
      : shared_(shared), state_(shared.state), context_(context) {}

  // The stream keeps itself until gRPC no longer uses it.
  void start() {
    self_ = shared_from_this();
    StartRead(&bytes_in_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    const Status status = within_memory([this] { return answer(); });
    if (status.ok()) return StartWrite(&bytes_out_);
    release();
    add_pushback(status, context_);
    Finish(to_grpc(status));
  }
  void OnWriteDone(bool ok) override {
    {
      std::lock_guard lock(mutex_);
      writing_since_.reset();
    }
    state_.calls.leave(self_);
    release();
    if (!ok) return Finish(grpc::Status::CANCELLED);
    StartRead(&bytes_in_);
  }
  void OnDone() override { const auto self = std::move(self_); }

  // --- LiveCall ---

  // Does nothing, because the answer is sent soon in any case.
  void end(const Status& /*status*/) override {}
  void tend(TimePoint now) override {
    std::lock_guard lock(mutex_);
    if (writing_since_ && now - *writing_since_ >= 2 * state_.stall_timeout) context_.TryCancel();
  }

 private:
  // Makes the answer, and enters the stream in the list of live calls.
  Status answer() {
    const int64_t length = length_of(bytes_in_);
    if (length > kMostRequestBytes) {
      return invalid_argument("the request has " + std::to_string(length) +
                              " bytes; a request for reflection has at most " +
                              std::to_string(kMostRequestBytes));
    }
    if (Status s = reserve(memory_for(bytes_in_)); !s.ok()) return s;
    const auto request = parse_message<wire::ServerReflectionRequest>(bytes_in_);
    if (!request.ok()) return request.status();
    bytes_out_ = serialize_message(answer_to(*request, shared_.services));
    bytes_in_.Clear();
    shrink(length_of(bytes_out_));
    state_.calls.enter(self_);
    std::lock_guard lock(mutex_);
    writing_since_ = state_.clock.now();
    return {};
  }

  // Reserves memory for a request and its answer. memory_for() gives at least 64 KiB, and the
  // descriptors of a file and its imports have at most 10 KiB, so it is enough for both.
  Status reserve(int64_t bytes) {
    if (!shared_.answers.grow(share_, bytes).ok()) {
      Status status(Code::kResourceExhausted,
                    "the answers to other requests for reflection take all memory that they may "
                    "have; try again");
      return status.with_retry_after(std::chrono::milliseconds(500));
    }
    return state_.memory.grow(room_, bytes);
  }
  void shrink(int64_t bytes) {
    MemoryBudget::shrink(room_, bytes);
    MemoryBudget::shrink(share_, bytes);
  }
  void release() {
    bytes_in_.Clear();
    bytes_out_.Clear();
    shrink(0);
  }

  Shared& shared_;
  ServerContext& state_;
  grpc::CallbackServerContext& context_;
  std::shared_ptr<Stream> self_;
  grpc::ByteBuffer bytes_in_, bytes_out_;
  MemoryBudget::Hold room_, share_;  // of the memory of all calls, and of Shared::answers
  std::mutex mutex_;
  std::optional<TimePoint> writing_since_;  // with mutex_ held
};

// This base class passes requests as bytes, so that the service can refuse a request before memory
// is allocated for its fields. As a message, a request can take 64 times its size on the wire.
using ReflectionBase = wire::ServerReflection::WithRawCallbackMethod_ServerReflectionInfo<
    wire::ServerReflection::Service>;

class ReflectionService final : public ReflectionBase {
 public:
  ReflectionService(ServerContext& state, std::vector<std::string> services)
      : shared_{state, std::move(services), MemoryBudget(state.memory.size() / kShare)} {}

  ByteStream* ServerReflectionInfo(grpc::CallbackServerContext* context) override {
    const auto stream = std::make_shared<Stream>(shared_, *context);
    stream->start();
    return stream.get();  // lives until OnDone()
  }

 private:
  Shared shared_;
};

}  // namespace

std::unique_ptr<grpc::Service> make_reflection_service(ServerContext& state,
                                                       std::vector<std::string> services) {
  return std::make_unique<ReflectionService>(state, std::move(services));
}

}  // namespace runnel
