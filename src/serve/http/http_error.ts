/** Errors as OpenAI's API reports them: `{error: {message, type, param, code}}`. */
import { ForgeError } from "../../errors.ts";
import { RequestError } from "../../requests/values.ts";

/** The object of an error. */
export interface ErrorBody {
  readonly error: {
    readonly message: string;
    readonly type: string;
    /** The key of the request that it is about. */
    readonly param: string | null;
    readonly code: string | null;
  };
}

/** What an error says beside its message. */
interface Details {
  readonly param?: string;
  readonly code?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** A request that is refused with a status of its own. */
export class HttpError extends Error {
  readonly status: number;
  readonly details: Details;

  constructor(status: number, message: string, details: Details = {}) {
    super(message);
    this.name = "HttpError";
    this.status = status;
    this.details = details;
  }
}

const MAX_PARAM_CHARACTERS = 200;

/** The status of what the client has closed; nobody reads it. */
const CLIENT_CLOSED = 499;

/** The response to a request that failed. */
export function errorResponse(error: unknown): Response {
  const { status, details } = settle(error);
  const { headers } = details;
  return Response.json(errorBody(error), { status, ...(headers === undefined ? {} : { headers }) });
}

/** An error as an object; what it says of forge's own faults is no more than that there is one. */
export function errorBody(error: unknown): ErrorBody {
  const { status, message, details: { param = null, code = null } } = settle(error);
  return { error: { message, type: typeOf(status), param, code } };
}

/** Whether the request is not to blame. */
export function isFault(error: unknown): boolean {
  return settle(error).status === 500;
}

function settle(error: unknown): HttpError {
  if (error instanceof HttpError) return error;
  if (error instanceof RequestError) {
    const { message, key } = error;
    return new HttpError(400, message, key === undefined ? {} : { param: shortened(key) });
  }
  if (!(error instanceof ForgeError)) return new HttpError(500, "internal error");
  switch (error.code) {
    case "usage":
    case "bad_input":
    case "unsupported":
      return new HttpError(400, error.message);
    case "cancelled":
      return new HttpError(CLIENT_CLOSED, error.message);
    default:
      return new HttpError(500, error.message, { code: error.code });
  }
}

/** Keeps a key of megabytes from being sent back. */
function shortened(key: string): string {
  return key.length > MAX_PARAM_CHARACTERS ? `${key.slice(0, MAX_PARAM_CHARACTERS)}…` : key;
}

function typeOf(status: number): string {
  if (status === 401) return "authentication_error";
  if (status === 403) return "permission_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}
