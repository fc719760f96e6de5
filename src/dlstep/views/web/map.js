/**
 * The map of a run: a column per position, a row per frame. Each frame is painted once into a bitmap, one pixel per cell. The
 * canvas shows this bitmap scaled, with lines and texts on top.
 */
import { cellAt } from "./state.js";
import { shade } from "./scale.js";
import { short, shown } from "./shown.js";

// In sixteenths of the font size of the page.
const WIDEST = 58, HIGHEST = 24; // size of a cell
const TALL = 400; // height of a map
const LEGIBLE = 20; // minimum width of a cell with text

export class StepMap {
  /** A map on a canvas; `pick(index, position)` is called when a cell is clicked, `point` when the pointer is on one. */
  constructor(canvas, pick, point) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.bitmap = document.createElement("canvas");
    this.pixels = this.bitmap.getContext("2d");
    this.painted = []; // the moments whose rows are in the bitmap
    this.run = null;
    this.cell = { width: 0, height: 0 };
    canvas.addEventListener("click", (event) => this.found(event, pick));
    canvas.addEventListener("pointermove", (event) => this.found(event, point));
    canvas.addEventListener("pointerleave", () => point(null, null));
  }

  found(event, call) {
    const box = this.canvas.getBoundingClientRect();
    const position = Math.floor((event.clientX - box.left) / this.cell.width);
    const index = Math.floor((event.clientY - box.top) / this.cell.height);
    const inside = this.run && index >= 0 && index < this.run.moments.length && position >= 0 && position < this.run.width;
    call(inside ? index : null, inside ? position : null);
  }

  /** Draw a run. `extent` is the number of columns and rows of all maps that are shown; `palette` has the colours. */
  draw(run, { index, selected, first, extent, palette, room }) {
    this.run = run;
    this.paint(run, palette);
    const { columns, rows } = extent;
    const unit = palette.unit;
    const width = Math.min(WIDEST * unit, room / Math.max(columns, 1));
    const height = Math.min(HIGHEST * unit, (TALL * unit) / Math.max(rows, 1));
    this.cell = { width, height };
    this.fit(columns * width, rows * height);
    const context = this.context;
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    if (!run.moments.length) return;
    context.imageSmoothingEnabled = width < 1 || height < 1;
    const [across, down] = [run.width, run.moments.length];
    context.drawImage(this.bitmap, 0, 0, across, down, 0, 0, across * width, down * height);
    this.grid(across, down, palette);
    if (width >= LEGIBLE * unit && height >= 14 * unit) this.words(palette);
    this.border(palette);
    this.marks(index, selected, first, palette);
  }

  /** Set the size of the canvas in CSS pixels and in screen pixels. */
  fit(width, height) {
    const ratio = window.devicePixelRatio || 1;
    const size = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
    if (this.canvas.width !== size[0]) this.canvas.width = size[0];
    if (this.canvas.height !== size[1]) this.canvas.height = size[1];
    this.canvas.style.width = `${Math.round(width)}px`;
    this.canvas.style.height = `${Math.round(height)}px`;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  /** Update the bitmap: paint only the rows of moments that it does not contain. */
  paint(run, palette) {
    if (palette !== this.palette) this.painted = [];
    this.palette = palette;
    this.grow(run.width, run.moments.length);
    let row = 0;
    while (row < this.painted.length && this.painted[row] === run.moments[row]) row += 1;
    this.painted.length = row;
    for (; row < run.moments.length; row += 1) {
      this.pixels.putImageData(rowOf(run, row, this.bitmap.width, palette), 0, row);
      this.painted.push(run.moments[row]);
    }
  }

  grow(width, height) {
    const [across, down] = [this.bitmap.width, this.bitmap.height];
    if (this.painted.length && width <= across && height <= down) return;
    const wider = Math.max(width, this.painted.length ? across : 0), taller = Math.max(height, this.painted.length ? down : 0);
    this.bitmap.width = Math.max(64, wider > across ? wider * 2 : wider); // setting a size clears the bitmap
    this.bitmap.height = Math.max(64, taller > down ? taller * 2 : taller);
    this.painted = [];
  }

  grid(across, down, palette) {
    const { width, height } = this.cell;
    if (width < 5 || height < 5) return;
    const context = this.context;
    context.strokeStyle = palette.text.card;
    context.lineWidth = Math.min(2, width / 6);
    context.beginPath();
    for (let column = 0; column <= across; column += 1) line(context, column * width, 0, column * width, down * height);
    for (let row = 0; row <= down; row += 1) line(context, 0, row * height, across * width, row * height);
    context.stroke();
  }

  /** Draw the texts of the tokens into the cells. */
  words(palette) {
    const { width, height } = this.cell, { context, run } = this;
    const size = 11.5 * palette.unit, most = Math.max(1, Math.floor((width - 4) / (size * 0.6)));
    context.font = `${size}px ui-monospace, 'DejaVu Sans Mono', monospace`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    run.moments.forEach((moment, row) => {
      const end = moment.settled + moment.cells.length;
      for (let position = 0; position < end; position += 1) {
        const cell = cellAt(run, row, position);
        if (!cell || cell[1] === null) continue;
        context.fillStyle = position < moment.settled ? palette.text.ink : palette.inks[shade(cell[2])];
        context.fillText(short(textOnMap(cell[3]), most), (position + 0.5) * width, (row + 0.54) * height, width - 2);
      }
    });
  }

  /** Draw the line between settled tokens and the window. */
  border(palette) {
    const { width, height } = this.cell, { context, run } = this;
    context.strokeStyle = palette.text.accent;
    context.lineWidth = 2;
    context.beginPath();
    run.moments.forEach((moment, row) => {
      const x = moment.settled * width;
      if (row === 0) context.moveTo(x, 0);
      else context.lineTo(x, row * height);
      context.lineTo(x, (row + 1) * height);
    });
    context.stroke();
  }

  /** Mark the current moment, the selected position and the first difference; fade later moments. */
  marks(index, selected, first, palette) {
    const { width, height } = this.cell, { context, run } = this;
    const across = run.width * width, down = run.moments.length * height;
    if (index < run.moments.length - 1) {
      context.globalAlpha = 0.62;
      context.fillStyle = palette.text.card;
      context.fillRect(0, (index + 1) * height, across + 2, down - (index + 1) * height);
      context.globalAlpha = 1;
    }
    context.lineWidth = 2;
    context.strokeStyle = palette.text.ink;
    context.strokeRect(1, index * height + 1, Math.max(across - 2, 1), Math.max(height - 2, 1));
    if (selected !== null) context.strokeRect(selected * width + 1, 1, Math.max(width - 2, 1), down - 2);
    if (first === null) return;
    context.strokeStyle = palette.text.differ;
    context.setLineDash([4, 3]);
    context.strokeRect(first * width + 1, 1, Math.max(width - 2, 1), down - 2);
    context.setLineDash([]);
  }
}

/** The text of a token in a cell, without spaces at its ends. */
function textOnMap(text) {
  return text ? shown(text).replaceAll("\n", "↵").trim() || "␣" : "∎";
}

function line(context, x, y, toX, toY) {
  context.moveTo(x, y);
  context.lineTo(toX, toY);
}

/** The pixels of one row. */
function rowOf(run, row, width, palette) {
  const data = new ImageData(width, 1), moment = run.moments[row];
  for (let position = 0; position < moment.settled; position += 1) {
    put(data.data, position, palette.settled[shade(run.tokens[position]?.[2] ?? 0)]);
  }
  moment.cells.forEach((cell, offset) => {
    put(data.data, moment.settled + offset, cell[1] === null ? palette.open : palette.shades[shade(cell[2])]);
  });
  return data;
}

function put(pixels, place, colour) {
  pixels.set([colour[0], colour[1], colour[2], 255], place * 4);
}
