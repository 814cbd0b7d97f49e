/** Errors in the form of OpenAI's API: `{error: {message, type, param, code}}`. */
import { TooLongError } from "../../engine/request/prompt.ts";
import { ForgeError } from "../../errors.ts";
import { RequestError } from "../../requests/values.ts";

interface ErrorBody {
  readonly error: {
    readonly message: string;
    readonly type: string;
    /** Key of the request that is wrong. */
    readonly param: string | null;
    readonly code: string | null;
  };
}

/** Details of an error, apart from its message. */
interface Details {
  readonly param?: string;
  readonly code?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** An error with its own HTTP status. */
export class HttpError extends Error {
  readonly status: number;
  readonly details: Details;

  constructor(status: number, message: string, details: Details = {}, options?: ErrorOptions) {
    super(message, options);
    this.name = "HttpError";
    this.status = status;
    this.details = details;
  }
}

/** Limit for keys in responses, which may be megabytes long in requests. */
const MAX_PARAM_CHARACTERS = 200;

/** Status after the client closed the request, as in nginx. */
const CLIENT_CLOSED = 499;

/** Returns the response for an error. @param body in the form of another API than OpenAI's */
export function errorResponse(error: unknown, body: object = errorBody(error)): Response {
  const { status, details: { headers } } = toHttpError(error);
  return Response.json(body, { status, ...(headers === undefined ? {} : { headers }) });
}

/** Returns the error object. It has no details of internal errors. */
export function errorBody(error: unknown): ErrorBody {
  const { status, message, details: { param = null, code = null } } = toHttpError(error);
  return { error: { message, type: typeOf(status), param, code } };
}

/** True if the fault is the server's, not the request's. */
export function isFault(error: unknown): boolean {
  return toHttpError(error).status === 500;
}

function toHttpError(error: unknown): HttpError {
  if (error instanceof HttpError) return error;
  if (error instanceof RequestError) {
    const { message, key } = error;
    return new HttpError(400, message, key === undefined ? {} : { param: shortened(key) });
  }
  if (error instanceof TooLongError) {
    return new HttpError(400, error.message, { code: "context_length_exceeded" });
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

function shortened(key: string): string {
  return key.length > MAX_PARAM_CHARACTERS ? `${key.slice(0, MAX_PARAM_CHARACTERS)}…` : key;
}

function typeOf(status: number): string {
  if (status === 401) return "authentication_error";
  if (status === 403) return "permission_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}
