// One picture: its bytes as far as they are known, on a canvas.

export class Picture {
  constructor(image, canvas = document.createElement('canvas')) {
    this.width = image.width;
    this.height = image.height;
    this.channels = image.channels;
    this.row_bytes = image.width * image.channels;
    this.bytes = new Uint8ClampedArray(this.row_bytes * image.height);
    this.known = 0;  // bytes
    this.canvas = canvas;
    canvas.width = image.width;
    canvas.height = image.height;
    this.context = canvas.getContext('2d');
    this.paint();
  }

  clear() {
    this.bytes.fill(0);
    this.known = 0;
    this.paint();
  }

  get size() {
    return this.bytes.length;
  }

  setRow(row, base64) {
    this.setBytes(row * this.row_bytes, Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)));
  }

  setBytes(from, values) {
    this.bytes.set(values, from);
    this.known = Math.max(this.known, from + values.length);
    this.paint();
  }

  // Shows the first `count` bytes, and where the next one will be if there is one.
  paint(count = this.known, marks = false) {
    const pixels = this.context.createImageData(this.width, this.height);
    const whole = Math.floor(count / this.channels);
    for (let i = 0; i < whole; ++i) {
      for (let c = 0; c < 3; ++c) {
        pixels.data[4 * i + c] = this.bytes[i * this.channels + (this.channels === 3 ? c : 0)];
      }
      pixels.data[4 * i + 3] = 255;
    }
    if (marks && whole < this.width * this.height) pixels.data.set([64, 208, 197, 255], 4 * whole);
    this.context.putImageData(pixels, 0, 0);
  }
}

// The pictures side by side as one PNG, each pixel `scale` wide, on black.
export function pngOf(pictures, columns, scale) {
  const { width, height } = pictures[0];
  const gap = 2;
  const sheet = document.createElement('canvas');
  sheet.width = scale * (Math.min(columns, pictures.length) * (width + gap) - gap);
  sheet.height = scale * (Math.ceil(pictures.length / columns) * (height + gap) - gap);
  const context = sheet.getContext('2d');
  context.imageSmoothingEnabled = false;
  context.fillRect(0, 0, sheet.width, sheet.height);
  pictures.forEach((picture, i) => {
    const x = scale * (i % columns) * (width + gap);
    const y = scale * Math.floor(i / columns) * (height + gap);
    context.drawImage(picture.canvas, x, y, scale * width, scale * height);
  });
  return new Promise((done) => sheet.toBlob(done, 'image/png'));
}
