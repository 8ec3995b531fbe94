/**
 * The subjects of capabilities. A node itself issues to its owner and its services. All other subjects get capabilities
 * from passport, which does not issue under these names, so the subject reveals the issuer.
 */
export const OWNER_SUBJECT = 'owner';
export const ROOT_SUBJECT = 'root';
const SERVICE_SUBJECT = 'svc-';

export function serviceSubject(service: string): string {
  return `${SERVICE_SUBJECT}${service}`;
}

/** Whether it is a service of this node. */
export function isServiceSubject(subject: string): boolean {
  return subject.startsWith(SERVICE_SUBJECT);
}

/** The service of a service's subject. */
export function serviceOf(subject: string): string {
  return subject.slice(SERVICE_SUBJECT.length);
}

/** Whether it is the owner or a service of this node. */
export function isNodeSubject(subject: string): boolean {
  return subject === OWNER_SUBJECT || subject === ROOT_SUBJECT || isServiceSubject(subject);
}
