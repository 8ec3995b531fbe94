/** Maps a failed file operation to an error of the table. */
import { isRonError, RonError } from '@ron/kernel';

const RETRY_AFTER_MS = 1000;
const codeOf = (cause: unknown): string => (cause as NodeJS.ErrnoException | undefined)?.code ?? '';

export const isFull = (cause: unknown): boolean => ['ENOSPC', 'EDQUOT'].includes(codeOf(cause));
export const isReadOnly = (cause: unknown): boolean => ['EROFS', 'EACCES', 'EPERM'].includes(codeOf(cause));

/** The file or directory no longer exists: it was deleted, moved or unmounted. */
export const isGone = (cause: unknown): boolean => ['ENOENT', 'ENOTDIR', 'ESTALE', 'ENODEV'].includes(codeOf(cause));

const rootOf = (error: unknown): unknown => (isRonError(error) ? error.cause : error);

/** The bytes at one place cannot be read. */
export const isBadSector = (error: unknown): boolean => codeOf(rootOf(error)) === 'EIO';

/** One place cannot be read, although others may be. */
export const isUnreadable = (error: unknown): boolean => isBadSector(error) || isGone(rootOf(error));

/** A full disk is `storage_full`, any other disk failure `not_ready`. A RonError is returned unchanged. */
export function diskError(cause: unknown, retry_after_ms = RETRY_AFTER_MS): RonError {
  if (isRonError(cause)) return cause;
  if (isFull(cause)) return new RonError('storage_full', 'the disk is full', { cause, retry_after_ms });
  const what = isReadOnly(cause)
    ? 'the disk is read-only'
    : isGone(cause)
      ? 'the file or directory is gone'
      : 'the disk failed';
  return new RonError('not_ready', `${what} (${codeOf(cause) || 'unknown error'})`, { cause, retry_after_ms });
}

/** For `catch`: throws the mapped error of a failed file operation, and any other error unchanged. */
export function rethrowDisk(error: unknown): never {
  throw codeOf(error) === '' ? error : diskError(error);
}
