// A WebSocket server that echoes every message, on uWebSockets' own settings but for the limits.
#include "App.h"

#include <cstdlib>

int main(int, char **arguments) {
    struct Nothing {};
    uWS::App()
        .ws<Nothing>("/*", {
            .compression = uWS::DISABLED,
            .maxPayloadLength = 16 * 1024 * 1024,
            .idleTimeout = 960,
            .maxBackpressure = 64 * 1024 * 1024,
            .sendPingsAutomatically = false,
            .message = [](auto *socket, std::string_view message, uWS::OpCode code) {
                socket->send(message, code, false);
            },
        })
        .listen("127.0.0.1", atoi(arguments[1]), [](auto *listener) {
            if (!listener) {
                exit(1);
            }
        })
        .run();
}
