#include "server/grpc/reflection_service.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/support/server_callback.h>

#include <set>
#include <utility>

#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"

namespace runnel {
namespace {

namespace wire = grpc::reflection::v1alpha;
using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;

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

// One stream. It reads the next request after it has sent the answer to the previous one.
class Stream final : public grpc::ServerBidiReactor<wire::ServerReflectionRequest,
                                                    wire::ServerReflectionResponse> {
 public:
  explicit Stream(const std::vector<std::string>& services) : services_(services) {
    StartRead(&request_);
  }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    response_.Clear();
    response_.set_valid_host(request_.host());
    *response_.mutable_original_request() = request_;
    look_up(request_, services_, response_);
    if (response_.message_response_case() ==
        wire::ServerReflectionResponse::MESSAGE_RESPONSE_NOT_SET) {
      response_.mutable_error_response()->set_error_code(grpc::StatusCode::NOT_FOUND);
      response_.mutable_error_response()->set_error_message("the server has nothing of this name");
    }
    StartWrite(&response_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    StartRead(&request_);
  }
  void OnDone() override { delete this; }

 private:
  const std::vector<std::string>& services_;
  wire::ServerReflectionRequest request_;
  wire::ServerReflectionResponse response_;
};

class ReflectionService final : public wire::ServerReflection::CallbackService {
 public:
  explicit ReflectionService(std::vector<std::string> services) : services_(std::move(services)) {}
  Stream* ServerReflectionInfo(grpc::CallbackServerContext* /*context*/) override {
    return new Stream(services_);
  }

 private:
  const std::vector<std::string> services_;
};

}  // namespace

std::unique_ptr<grpc::Service> make_reflection_service(std::vector<std::string> services) {
  return std::make_unique<ReflectionService>(std::move(services));
}

}  // namespace runnel
