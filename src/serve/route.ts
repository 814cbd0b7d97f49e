import type { Service } from "./service.ts";

/**
 * What a request for a path is answered by.
 *
 * @param rest what the path has in place of the `*` of its route
 */
export type Endpoint = (
  service: Service,
  request: Request,
  rest: string,
) => Response | Promise<Response>;

/** Which requests an endpoint answers. */
export interface Route {
  readonly method: "GET" | "POST";
  /** A path, or the beginning of one before a `*`. */
  readonly path: string;
  readonly endpoint: Endpoint;
  /** Whether it is answered without the API key. */
  readonly isOpen?: boolean;
}
