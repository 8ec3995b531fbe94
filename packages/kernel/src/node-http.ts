/**
 * `node:http` without its web classes. An `import` of `node:http` reads every export, and the three classes of WebSocket
 * among them load all of undici: about 50 ms of CPU for a bare import.
 */
import type * as http from 'node:http';

export const { createServer, request, STATUS_CODES, validateHeaderValue, Agent } =
  process.getBuiltinModule('node:http');
export type Agent = http.Agent;
export type {
  AgentOptions,
  ClientRequest,
  ClientRequestArgs,
  IncomingHttpHeaders,
  IncomingMessage,
  RequestOptions,
  Server,
  ServerResponse,
} from 'node:http';
