/**
 * The headers of tus 1.0: parses those of requests and formats those of answers.
 *
 * Contract: pure functions. A header that violates the protocol throws a `RonError`.
 */
import type { IncomingHttpHeaders } from 'node:http';
import type { UploadStatus } from '@ron/cas';
import { codingOf, type AnswerHeaders } from '@ron/ingress';
import { RonError } from '@ron/kernel';
import { checkAddress, type Address } from '@ron/proto';
import { mediaTypeFrom } from '../objects/object-bytes.ts';

export const TUS_VERSION = '1.0.0';
const EXTENSIONS = ['creation', 'creation-with-upload', 'creation-defer-length', 'expiration', 'termination'];
const CONTENT_TYPE = 'application/offset+octet-stream';
const METADATA_KEY = /^[\x21-\x2b\x2d-\x7e]{1,255}$/;
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;

/** Sent with every refusal, so that a client of another version learns the supported one. */
export const REFUSAL_HEADERS: AnswerHeaders = { 'Tus-Resumable': TUS_VERSION, 'Tus-Version': TUS_VERSION };

export function optionsHeaders(object_bytes_max: number): AnswerHeaders {
  return {
    'Tus-Resumable': TUS_VERSION,
    'Tus-Version': TUS_VERSION,
    'Tus-Extension': EXTENSIONS.join(','),
    'Tus-Max-Size': String(object_bytes_max),
  };
}

/** Throws unless the client uses the supported version. */
export function requireVersion(headers: IncomingHttpHeaders): void {
  if (headers['tus-resumable'] === TUS_VERSION) return;
  throw new RonError('precondition_failed', `Tus-Resumable must be ${TUS_VERSION}`);
}

/** Whether the request carries bytes of the upload; throws when it carries something else. */
export function bringsBytes(headers: IncomingHttpHeaders): boolean {
  const length = headers['content-length'];
  const isEmpty = headers['transfer-encoding'] === undefined && (length === undefined || length === '0');
  const encoding = headers['content-encoding'];
  if (codingOf(encoding) !== undefined) {
    throw new RonError(
      'unsupported_media',
      'Content-Encoding is not supported for uploads, because offsets count plain bytes',
    );
  }
  if (headers['content-type'] === CONTENT_TYPE) return true;
  if (isEmpty) return false;
  throw new RonError('unsupported_media', `the Content-Type of upload bytes must be ${CONTENT_TYPE}`);
}

/** A whole number in a header; undefined when the header is absent. */
export function numberIn(headers: IncomingHttpHeaders, name: string): number | undefined {
  const text = headers[name];
  if (text === undefined) return undefined;
  if (typeof text === 'string' && /^\d{1,15}$/.test(text)) return Number(text);
  throw new RonError('bad_request', `${name} is not a number of bytes`);
}

/** The size of a new upload, or undefined when the client defers it. */
export function sizeIn(headers: IncomingHttpHeaders): number | undefined {
  const size = numberIn(headers, 'upload-length');
  const deferred = headers['upload-defer-length'];
  if (deferred !== undefined && deferred !== '1')
    throw new RonError('bad_request', 'Upload-Defer-Length must be 1 or absent');
  if ((size === undefined) !== (deferred === '1')) {
    throw new RonError('bad_request', 'exactly one of Upload-Length and Upload-Defer-Length is required');
  }
  return size;
}

/** The interpreted part of the metadata of an upload. */
export interface Metadata {
  readonly media_type: string | undefined;
  /** The address that the bytes will have. */
  readonly address: Address | undefined;
}

/** Parses `key base64, key base64`. Only `filetype` and `address` are interpreted; the rest is returned unchanged. */
export function metadataFrom(text: string): Metadata {
  const values = new Map<string, string>();
  for (const pair of text === '' ? [] : text.split(',')) {
    const [key = '', value = '', ...more] = pair.trim().split(' ');
    if (!METADATA_KEY.test(key) || !BASE64.test(value) || more.length > 0 || values.has(key)) {
      throw new RonError(
        'bad_request',
        'Upload-Metadata must be comma-separated pairs of a name and a value in base64',
      );
    }
    values.set(key, Buffer.from(value, 'base64').toString('latin1'));
  }
  return { media_type: mediaTypeFrom(values.get('filetype')), address: addressIn(values.get('address')) };
}

function addressIn(text: string | undefined): Address | undefined {
  if (text === undefined) return undefined;
  const result = checkAddress(text);
  if (!result.ok) throw new RonError('bad_request', result.problem);
  return result.address;
}

/** The headers that describe an upload in every answer. */
export function statusHeaders(status: UploadStatus, durability: string | undefined): Record<string, string> {
  const { offset, address, expires_ms } = status;
  return {
    'Tus-Resumable': TUS_VERSION,
    'Upload-Offset': String(offset),
    'Upload-Expires': new Date(expires_ms).toUTCString(),
    ...(address !== undefined && { 'Ron-Address': address }),
    ...(address !== undefined && durability !== undefined && { 'Ron-Durability': durability }),
  };
}

/** The headers of the answer to a client that wants to resume. */
export function headHeaders(status: UploadStatus, durability: string | undefined): Record<string, string> {
  const { size, metadata } = status;
  return {
    ...statusHeaders(status, durability),
    'Cache-Control': 'no-store',
    ...(size === undefined ? { 'Upload-Defer-Length': '1' } : { 'Upload-Length': String(size) }),
    ...(metadata !== '' && { 'Upload-Metadata': metadata }),
  };
}
