// The paths of /v1/responses.
#pragma once

#include <memory>

#include "server/host/server_context.h"
#include "server/http/http_server.h"
#include "server/http/short_call.h"
#include "server/openai/response_store.h"

namespace runnel {

// Answers the items of the request as start_chat() answers messages. The response is kept in
// `store`, unless the request says otherwise.
void start_response(ServerContext& state, std::shared_ptr<ResponseStore> store,
                    const HttpRequest& request, HttpReply reply);

// Answers with a stored response, whose id is in the path. NOT_FOUND.
Fault get_response(ShortCall& call, ResponseStore& store);

// Deletes a stored response, whose id is in the path. NOT_FOUND.
Fault delete_response(ShortCall& call, ResponseStore& store);

}  // namespace runnel
