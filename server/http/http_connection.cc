#include "server/http/http_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <limits>

#include "base/network.h"

namespace runnel {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

namespace {

constexpr size_t kBuffersPerWrite = 16;
constexpr auto kWatch = std::chrono::seconds(1);  // between checks for a reset

TimePoint machine_time() { return asio::steady_timer::clock_type::now(); }

std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }
beast::string_view beast_view(std::string_view text) { return {text.data(), text.size()}; }

HttpRefusal body_too_long(const HttpLimits& limits) {
  const std::string setting = limits.body_setting;
  return {413, "the body has more than " + std::to_string(limits.body_bytes) + " bytes" +
                   (setting.empty() ? "" : " (" + setting + ")") + "; send less"};
}

// The answer to input that the parser rejects.
HttpRefusal fault(const error_code& error, const HttpLimits& limits) {
  if (error == http::error::body_limit) return body_too_long(limits);
  if (error == http::error::bad_version) {
    return {505, "the request line must end with HTTP/1.0 or HTTP/1.1"};
  }
  return {400, "the request is not HTTP/1.1: " + error.message()};
}

// Whether a line of `text`, the framing that the parser has not consumed, ends without CR.
bool has_bare_newline(std::string_view text) {
  for (size_t at = text.find('\n'); at != std::string_view::npos; at = text.find('\n', at + 1)) {
    if (at == 0 || text[at - 1] != '\r') return true;
  }
  return false;
}

// Refuses a chunk whose extensions, which the parser has checked, have a newline in a quoted text.
// A proxy that ends a line there would see other chunks.
void check_extensions(uint64_t /*bytes*/, beast::string_view extensions, error_code& error) {
  if (has_bare_newline(view(extensions))) error = http::error::bad_chunk_extension;
}

}  // namespace

AcceptedSocket::~AcceptedSocket() {
  if (socket.is_open()) shutdown(socket.get(), SHUT_RDWR);
}

HttpConnection::HttpConnection(HttpWorker& worker, AcceptedSocket accepted,
                               const HttpLimits& limits, const std::vector<HttpRoute>& routes,
                               std::atomic<int64_t>& bodies, const HttpHooks& hooks,
                               const Clock& clock)
    : worker_(worker),
      limits_(limits),
      routes_(routes),
      bodies_(bodies),
      hooks_(hooks),
      clock_(clock),
      socket_(worker.context),
      rules_(limits),
      timer_(worker.context),
      watch_(worker.context) {
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  getpeername(accepted.socket.get(), reinterpret_cast<sockaddr*>(&peer), &size);
  peer_ = network_of(peer);
  error_code error;
  socket_.assign({peer.ss_family, 0}, accepted.socket.get(), error);
  if (!error) accepted.socket.release();
  if (!error) socket_.non_blocking(true, error);
}

void HttpConnection::start() {
  worker_.connections.insert(shared_from_this());
  next_request();
  read();
}

void HttpConnection::close() {
  if (!rules_.close()) return;
  const auto self = shared_from_this();
  timer_.cancel();
  watch_.cancel();
  error_code ignored;
  // The listener sees this, too, because it has its own descriptor.
  socket_.shutdown(asio::socket_base::shutdown_both, ignored);
  socket_.close(ignored);
  worker_.connections.erase(self);
  std::erase(worker_.lingering, this);
  forget_request();
  outgoing_.clear();
  take_ = {};
  tell_gone();
}

void HttpConnection::act(Next next) {
  switch (next) {
    case Next::kWait:
      return;
    case Next::kRead:
      return wait_for_bytes();
    case Next::kWatch:
      return watch();
    case Next::kParse:
      return parse();
    case Next::kPass:
      return pass_piece();
    case Next::kContinue:
      return send("HTTP/1.1 100 Continue\r\n\r\n");
    case Next::kHeartbeat:
      return send(heartbeat_);
    case Next::kWrite:
      return write();
    case Next::kFinish:
      return finish();
    case Next::kLinger:
      return linger();
    case Next::kRefuseCut:
      return refuse({400, "the request ends too early"});
    case Next::kRefuseLate:
      return refuse({408, "the request took too long to come"});
    case Next::kClose:
      return close();
  }
}

void HttpConnection::wait_for_bytes() {
  socket_.async_wait(asio::socket_base::wait_read, bound(&HttpConnection::on_readable));
}

void HttpConnection::on_readable(error_code error, size_t) {
  if (error) return close();
  const size_t bytes = socket_.read_some(asio::buffer(worker_.incoming), error);
  if (error == asio::error::would_block) return wait_for_bytes();
  if (error && error != asio::error::eof) return close();
  if (rules_.phase() != Phase::kHangingUp) pending_.append(worker_.incoming.data(), bytes);
  act(rules_.came(error == asio::error::eof));
  read();
}

void HttpConnection::watch() {
  watch_.expires_after(kWatch);
  watch_.async_wait(bound(&HttpConnection::on_watch));
}

void HttpConnection::on_watch(error_code, size_t) {
  if (rules_.watched(pending_.size())) {
    pollfd file = {socket_.native_handle(), POLLRDHUP, 0};
    poll(&file, 1, 0);
    if ((file.revents & (POLLHUP | POLLERR)) != 0) return close();
    if ((file.revents & POLLRDHUP) != 0 && form_.version >= 11) act(rules_.probe());
  }
  read();
}

void HttpConnection::next_request() {
  parser_.emplace();
  parser_->on_chunk_header(check_extensions);
  forget_request();
  parser_->header_limit(static_cast<uint32_t>(limits_.header_bytes));
  parser_->body_limit(std::numeric_limits<uint64_t>::max());  // until bound_body()
  head_bytes_ = 0;
  route_ = nullptr;
  form_ = {.clock = &clock_};
  rules_.next_request(machine_time());
}

// Parses `pending_` up to the end of one request.
void HttpConnection::parse() {
  if (rules_.phase() == Phase::kIdle) {
    skip_empty_lines();
    if (pending_ == "\r" && !rules_.client_ended()) return;  // half of an empty line
    if (!pending_.empty()) rules_.begin_request(machine_time());
  }
  while (!pending_.empty() && parse_some()) {
    if (rules_.phase() != Phase::kReading) return;
  }
  act(rules_.needs_more());
}

// Some clients end a body with an empty line (RFC 9112, 2.2).
void HttpConnection::skip_empty_lines() {
  while (pending_.starts_with("\r\n")) pending_.erase(0, 2);
}

// A later version of HTTP/1 is served as 1.1 (RFC 9110, 2.5), but the parser does not support it.
void HttpConnection::lower_minor_version() {
  constexpr std::string_view kVersion = " HTTP/1.";
  // The parser refuses the version even before the end of the line has come.
  const size_t end = std::min(pending_.find('\r'), pending_.size());
  if (head_bytes_ > 0 || end <= kVersion.size()) return;
  char& minor = pending_[end - 1];
  const std::string_view before = std::string_view(pending_).substr(0, end - 1);
  if (before.ends_with(kVersion) && minor > '1' && minor <= '9') minor = '1';
}

// False when more bytes are needed.
bool HttpConnection::parse_some() {
  const bool in_head = !parser_->is_header_done();
  if (in_head) lower_minor_version();
  error_code error;
  const size_t used = parser_->put(asio::buffer(pending_), error);
  pending_.erase(0, used);
  const bool needs_more = error == http::error::need_more;
  // The parser's own limit covers only the bytes of one call.
  if (in_head) head_bytes_ += used;
  const size_t unparsed = needs_more ? pending_.size() : 0;
  const bool too_long =
      static_cast<int64_t>(in_head ? head_bytes_ + unparsed : unparsed) > limits_.header_bytes;
  if (too_long || error == http::error::header_limit) {
    // A line that came in several parts may be complete, although the parser has not consumed it.
    const bool in_first_line = in_head && head_bytes_ == 0 &&
                               pending_.find('\n') >= static_cast<size_t>(limits_.header_bytes);
    const std::string what = in_first_line ? "the request line has"
                             : in_head     ? "the request line and the headers have"
                                           : "the line of a chunk or the trailer has";
    refuse({in_first_line ? 414 : 431,
            what + " more than " + std::to_string(limits_.header_bytes) + " bytes; send fewer"});
    return true;
  }
  if (needs_more && has_bare_newline(pending_)) {
    refuse({400, "the request is not HTTP/1.1: a line must end with CR LF"});
    return true;
  }
  if (!count_body()) {
    refuse({503, "the server reads too many requests; try again later"}, {{"Retry-After", "1"}});
    return true;
  }
  if (needs_more) return false;
  if (error) {
    refuse(fault(error, limits_));
    return true;
  }
  if (in_head && parser_->is_header_done()) refuse_bad_head();
  if (rules_.phase() == Phase::kReading && (parser_->is_done() || route_->in_pieces)) handle();
  return true;
}

// Returns false if all bodies together exceed their limit.
bool HttpConnection::count_body() {
  // The parser allocates memory for the whole length that the head announces.
  const auto bytes = static_cast<int64_t>(parser_->get().body().capacity());
  const int64_t more = bytes - std::exchange(body_bytes_, bytes);
  return more == 0 || bodies_.fetch_add(more) + more <= limits_.bodies_bytes;
}

void HttpConnection::forget_request() {
  if (parser_) parser_->get().body() = std::string();
  fields_ = http::request_header<>();
  bodies_.fetch_sub(std::exchange(body_bytes_, 0));
}

RequestHead HttpConnection::head() const {
  const auto& head = fields_;
  const RequestTarget target = split_target(view(head.target()));
  return {.version = head.version(),
          .method = view(head.method_string()),
          .target = target.from_path,
          .authority = target.authority,
          .count = [&](std::string_view name) { return head.count(beast_view(name)); },
          .header =
              [&head, host = target.authority](std::string_view name) {
                return !host.empty() && same_word(name, "host") ? host
                                                                : view(head[beast_view(name)]);
              }};
}

// Refuses a bad head before the body is read.
void HttpConnection::refuse_bad_head() {
  // The parser adds the trailer of a body to its own headers, where nothing checks it: it could
  // have a key or an origin that no proxy has seen (RFC 9112, 7.1.2).
  fields_ = std::move(parser_->get().base());
  const RequestHead head = this->head();
  form_ = {.version = head.version,
           .head_only = head.method == "HEAD",
           .keep_alive = head.version == 11 && parser_->keep_alive(),
           .clock = &clock_};
  if (hooks_.headers_for) form_.headers = hooks_.headers_for(head.header);
  if (auto fault = check_head(head)) {
    if (fault->hides_end) form_.keep_alive = false;
    return refuse(std::move(fault->refusal));
  }
  RouteMatch match = find_route(routes_, head);
  route_ = match.route;
  allow_ = std::move(match.allow);
  if (route_ == nullptr) {
    HttpHeaders headers;
    if (!allow_.empty()) headers.emplace_back("Allow", allow_);
    return refuse(std::move(match.refusal), headers);
  }
  if (!bound_body()) return;
  const std::string_view expected = head.header("expect");
  if (head.version < 11 || expected.empty() || parser_->is_done()) return;
  if (!same_word(expected, "100-continue")) return refuse({417, "expect must be 100-continue"});
  rules_.expect_continue();
  // A handler that takes pieces asks for the first one itself.
  if (!route_->in_pieces) act(rules_.want_body());
}

// Returns false if the request was refused because its body is too long.
bool HttpConnection::bound_body() {
  if (route_->in_pieces) return true;
  const auto most = static_cast<uint64_t>(limits_.body_bytes);
  parser_->body_limit(most);  // for chunked bodies
  if (parser_->content_length().value_or(0) <= most) return true;
  refuse(body_too_long(limits_));
  return false;
}

void HttpConnection::handle() {
  rules_.end_request(machine_time());
  if (route_->in_pieces) form_.keep_alive = false;  // the rest of the body may never be taken
  const RequestHead head = this->head();
  const HttpRequest request = {.method = head.method,
                               .target = head.target,
                               .part = match_path(route_->path, path_of(head.target)).value(),
                               .allow = allow_,
                               .body = parser_->get().body(),
                               .peer = peer_,
                               .header = head.header};
  route_->handle(request, make_reply(worker_.weak_from_this(), weak_from_this(), form_, waiting_));
  forget_request();
  if (route_->in_pieces) {
    pieces_ = std::make_unique<PieceParser>(std::move(*parser_));
    pieces_->on_chunk_header(check_extensions);
    pieces_->eager(true);
  }
  parser_.reset();
}

void HttpConnection::read_body(BodyTaker take) {
  if (!rules_.takes_answer()) return;
  take_ = std::move(take);
  act(rules_.want_body());
  pass_piece();
}

// Hands the bytes of the body that have arrived to the handler that waits for them.
void HttpConnection::pass_piece() {
  if (!take_ || pieces_ == nullptr) return;
  auto& body = pieces_->get().body();
  body.data = worker_.piece.data();
  body.size = worker_.piece.size();
  error_code error;
  if (!pieces_->is_done() && !pending_.empty()) {
    pending_.erase(0, pieces_->put(asio::buffer(pending_), error));
  }
  const size_t bytes = worker_.piece.size() - body.size;
  const bool waits = !error || error == http::error::need_more;
  if (bytes > 0 || pieces_->is_done()) {
    take_.tell(std::string_view(worker_.piece.data(), bytes));
  } else if (waits && rules_.client_ended()) {
    take_.tell(invalid_argument("the body ends too early"));
  } else if (!waits || pending_.size() >= kHttpReadBytes) {
    take_.tell(invalid_argument("the body is not HTTP/1.1: " + error.message()));
  }
  read();
}

void HttpConnection::refuse(HttpRefusal refusal, const HttpHeaders& headers) {
  refusal.peer = peer_;
  if (hooks_.on_refusal) hooks_.on_refusal(refusal);
  HttpAnswer answer = http_error(refusal.status, refusal.message);
  // If a request was not read to its end, the bytes that follow are not the next request.
  form_.keep_alive = form_.keep_alive && parser_->is_done();
  forget_request();
  int64_t bytes =
      enqueue(answer_head(form_, answer.status, answer.content_type, answer.body.size(), headers));
  if (!form_.head_only) bytes += enqueue(std::move(answer.body));
  act(rules_.refuse(bytes, machine_time()));
}

void HttpConnection::deliver(std::vector<Piece> pieces, bool last) {
  if (!rules_.takes_answer()) return;
  int64_t bytes = 0;
  for (Piece& piece : pieces) {
    bytes += std::ssize(piece.bytes);
    if (!piece.bytes.empty()) {
      outgoing_.push_back(std::move(piece));
    } else {
      piece.taken.tell(true);
    }
  }
  if (last) {
    on_gone_.forget();
    take_ = {};
  }
  act(rules_.answer(bytes, last, machine_time()));
}

// Returns the number of bytes, of which the rules have yet to be told.
int64_t HttpConnection::enqueue(std::string bytes) {
  const int64_t count = std::ssize(bytes);
  waiting_->fetch_add(count);
  outgoing_.push_back({std::move(bytes)});
  return count;
}

void HttpConnection::send(std::string bytes) {
  act(rules_.send(enqueue(std::move(bytes)), machine_time()));
}

void HttpConnection::write() {
  std::array<asio::const_buffer, kBuffersPerWrite> buffers;
  const size_t count = std::min(buffers.size(), outgoing_.size());
  for (size_t i = 0; i < count; ++i) buffers[i] = asio::buffer(outgoing_[i].bytes);
  buffers[0] += written_;
  socket_.async_write_some(buffers, bound(&HttpConnection::on_write));
}

void HttpConnection::on_write(error_code error, size_t bytes) {
  if (error) return close();
  waiting_->fetch_sub(static_cast<int64_t>(bytes));
  written_ += bytes;
  while (!outgoing_.empty() && written_ >= outgoing_.front().bytes.size()) {
    written_ -= outgoing_.front().bytes.size();
    Taken taken = std::move(outgoing_.front().taken);
    outgoing_.pop_front();
    taken.tell(true);
  }
  act(rules_.written(static_cast<int64_t>(bytes), machine_time()));
}

void HttpConnection::finish() {
  if (form_.keep_alive) {
    next_request();
    parse();
    return read();
  }
  error_code ignored;
  socket_.shutdown(asio::socket_base::shutdown_send, ignored);
  const bool in_pieces = route_ != nullptr && route_->in_pieces;
  act(rules_.hang_up(in_pieces, machine_time()));
}

// If a worker has more lingering connections than its share, it closes the oldest: that client has
// had the most time to take the answer.
void HttpConnection::linger() {
  worker_.lingering.push_back(this);
  if (std::ssize(worker_.lingering) > lingering_share(limits_)) worker_.lingering.front()->close();
  read();
}

void HttpConnection::set_timer() {
  if (timer_at_ == rules_.deadline()) return;
  timer_at_ = rules_.deadline();
  timer_.expires_at(timer_at_);
  if (timer_at_ != TimePoint::max()) timer_.async_wait(bound(&HttpConnection::on_deadline));
}

// Also called for a deadline that has been moved.
void HttpConnection::on_deadline(error_code, size_t) {
  act(rules_.deadline_passed(machine_time()));
}

void HttpConnection::tell_gone() {
  if (on_gone_) on_gone_.tell(false);
}

}  // namespace runnel
