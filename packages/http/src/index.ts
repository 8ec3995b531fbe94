export * from './decode-body.ts';
export * from './hop-headers.ts';
